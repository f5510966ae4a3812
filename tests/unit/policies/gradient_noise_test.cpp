// SPDX-License-Identifier: MIT
// The policy that docs/writing_a_policy.md shows, as that page has it.
// Runs on every device.
// Tests loop: context
#include "support/precompiled.hpp"

#include <looptorch/trainer.hpp>

#include "support/place.hpp"
#include "support/toy.hpp"

namespace lt = looptorch;

#include "gradient_noise.hpp"  // extracted from the page

namespace {

toy::Net net_here() {
  toy::Net net = toy::net();
  net->to(lt::testing::place());
  return net;
}

toy::Batch here(const toy::Batch& batch) {
  return {lt::testing::placed(batch.features), lt::testing::placed(batch.labels)};
}

}  // namespace

TEST_CASE("the page's gradient noise is the loop by hand, bit for bit") {
  const auto data = toy::batches(6);
  auto ours = net_here(), theirs = net_here();
  torch::optim::SGD a(ours->parameters(), 0.1), b(theirs->parameters(), 0.1);
  torch::manual_seed(7);
  lt::Trainer trainer(ours, a, toy::objective, GradientNoise{.eta = 0.3}, lt::Accumulate<2>{});
  trainer.fit(data);
  CHECK(trainer.policy<GradientNoise>().updates == 3);

  torch::manual_seed(7);
  for (int64_t step = 0; step < 3; ++step) {
    const auto first = static_cast<std::size_t>(2 * step);
    toy::objective(theirs, here(toy::join(data, first, first + 2))).value.backward();
    for (auto& parameter : theirs->parameters())
      parameter.mutable_grad().add_(torch::randn_like(parameter.grad()),
                                    std::sqrt(0.3 / std::pow(1.0 + static_cast<double>(step), 0.55)));
    b.step();
    b.zero_grad();
  }
  CHECK(toy::distance(ours, theirs) < 1e-12);
}

TEST_CASE("its noise continues from a state, and does not count steps that were not made") {
  auto net = net_here();
  lt::FusedAdamW adamw(net->parameters());
  bool strikes = true;
  const lt::On veto{lt::kCheck, [&](lt::UpdateContext& update) {
                      update.veto(lt::testing::placed(torch::full({}, strikes)));
                    }};
  lt::Trainer trainer(net, adamw, toy::objective, GradientNoise{}, veto);
  trainer.fit(toy::batches(3));
  CHECK(trainer.policy<GradientNoise>().updates == 0);
  strikes = false;
  trainer.fit(toy::batches(3));
  lt::Trainer again(net, adamw, toy::objective, GradientNoise{});
  again.load_state_dict(trainer.state_dict());
  CHECK(again.policy<GradientNoise>().updates == 3);
}
