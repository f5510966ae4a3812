// SPDX-License-Identifier: MIT
// The clipping policy that docs/writing_a_policy.md shows, as that page has it.
// Tests loop: context
#include "support/precompiled.hpp"

#include <looptorch/trainer.hpp>

#include "support/place.hpp"
#include "support/toy.hpp"

namespace lt = looptorch;

#include "clip_and_count.hpp"  // extracted from the page

namespace {

toy::Net net_here() {
  toy::Net net = toy::net();
  net->to(lt::testing::place());
  return net;
}

/// Trains three windows an epoch by hand, elements clipped to `limit` after a norm of at most `max_norm`;
/// returns how many were clipped in each epoch.
std::vector<std::int64_t> by_hand(toy::Net& net, const std::vector<toy::Batch>& data, double max_norm,
                                  double limit) {
  torch::optim::SGD sgd(net->parameters(), 0.1);
  std::vector<std::int64_t> clipped;
  for (int epoch = 0; epoch < 2; ++epoch) {
    clipped.push_back(0);
    for (const toy::Batch& batch : data) {
      const toy::Batch here{lt::testing::placed(batch.features), lt::testing::placed(batch.labels)};
      toy::objective(net, here).value.backward();
      torch::nn::utils::clip_grad_norm_(net->parameters(), max_norm);
      for (auto& parameter : net->parameters()) {
        clipped.back() += parameter.grad().abs().gt(limit).sum().item<std::int64_t>();
        parameter.mutable_grad().clamp_(-limit, limit);
      }
      sgd.step();
      sgd.zero_grad();
    }
  }
  return clipped;
}

}  // namespace

TEST_CASE(
    "the page's clipping policy clips and counts as the loop by hand, after ClipGradNorm wherever it is listed") {
  const auto data = toy::batches(3);
  auto theirs = net_here();
  const auto clipped = by_hand(theirs, data, 0.5, 0.02);
  REQUIRE(clipped[0] > 0);
  REQUIRE(clipped[0] != clipped[1]);
  const auto check = [&](auto... policies) {
    auto ours = net_here();
    torch::optim::SGD sgd(ours->parameters(), 0.1);
    lt::Trainer trainer(ours, sgd, toy::objective, policies...);
    for (const std::int64_t expected : clipped) {
      trainer.fit(data, {.epochs = trainer.progress().epoch + 1});
      CHECK(trainer.metrics().find("clipped") == static_cast<double>(expected));
    }
    CHECK(toy::distance(ours, theirs) < 1e-6);
  };
  check(ClipAndCount{0.02}, lt::ClipGradNorm{0.5});
  check(lt::ClipGradNorm{0.5}, ClipAndCount{0.02});
}
