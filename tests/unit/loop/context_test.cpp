// SPDX-License-Identifier: MIT
// UpdateContext: what a hook may do to an update.
// Runs on every device.
// Tests loop: update_context
#include "support/precompiled.hpp"

#include <looptorch/trainer.hpp>

#include "support/place.hpp"
#include "support/toy.hpp"

namespace lt = looptorch;

namespace {

at::Tensor features() { return torch::sin(torch::arange(32, torch::kFloat)).reshape({8, 4}); }
toy::Net float_net() {
  auto net = toy::net();
  net->to(lt::testing::place(), torch::kFloat);
  return net;
}

}  // namespace

TEST_CASE("a vetoed update changes nothing, by a bool or by a tensor, with either kind of optimizer") {
  for (const bool by_tensor : {false, true}) {
    auto a = float_net(), b = float_net(), before = float_net();
    torch::optim::SGD plain(a->parameters(), 0.1);
    lt::FusedAdamW fused(b->parameters());
    const auto objective = [](toy::Net& net, const at::Tensor& x) { return net(x).pow(2).mean(); };
    int64_t after = 0;
    const lt::On veto{lt::kCheck, [&](lt::UpdateContext& update) {
                        by_tensor ? update.veto(lt::testing::placed(torch::ones({}))) : update.veto();
                      }};
    const lt::On count{lt::kObserve, [&](lt::UpdateContext&) { ++after; }};
    lt::Trainer one(a, plain, objective, veto, count);
    lt::Trainer two(b, fused, objective, veto, count);
    CHECK(one.fit(std::vector{features()}).skipped == 1);
    CHECK(two.fit(std::vector{features()}).skipped == 1);
    CHECK(after == 0);
    CHECK(toy::distance(a, before) == 0.0);
    CHECK(toy::distance(b, before) == 0.0);
    const bool host_knows = lt::testing::place().is_cpu();  // a device's first moments are there, and zero
    if (by_tensor && host_knows) CHECK(fused.state_of(b->parameters()[0]).empty());
  }
}
