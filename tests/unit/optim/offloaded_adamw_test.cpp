// SPDX-License-Identifier: MIT
// OffloadedAdamW on a CPU, where it is FusedAdamW; tests/device has it on an accelerator.
// Tests optim: host_pipeline
#include "support/precompiled.hpp"

#include <looptorch/optim/fused_adamw.hpp>
#include <looptorch/optim/offloaded_adamw.hpp>

#include "recorded.hpp"

namespace offloaded_adamw_test {

namespace lt = looptorch;

TEST_CASE("OffloadedAdamW has FusedAdamW's numbers, and goes on from its state or from the other's") {
  auto plain = recorded::parameters(torch::kFloat), ours = recorded::parameters(torch::kFloat);
  lt::FusedAdamW a(plain, {.lr = 1e-2});
  lt::OffloadedAdamW b(ours, {.lr = 1e-2, .part = 2});
  recorded::run(a, plain, 0, 6), recorded::run(b, ours, 0, 6);
  CHECK(recorded::flat(plain).equal(recorded::flat(ours)));
  lt::OffloadedAdamW c(ours, {.lr = 1e-2 / 2});
  for (std::size_t i = 0; i < ours.size(); ++i) c.load_state_of(ours[i], a.state_of(plain[i]));
  recorded::set_gradients(plain, 7), recorded::set_gradients(ours, 7);
  a.param_groups()[0].options().set_lr(1e-2 / 2);
  a.step(), c.step();
  CHECK(recorded::flat(plain).equal(recorded::flat(ours)));
  CHECK(recorded::flat_state(a, plain).equal(recorded::flat_state(c, ours)));
  const auto before = recorded::flat(ours);
  c.step({}, torch::ones({}));
  CHECK(recorded::flat(ours).equal(before));
}

TEST_CASE("OffloadedAdamW refuses options out of range, with their values") {
  const auto make = [](lt::OffloadedAdamWOptions options) {
    lt::OffloadedAdamW({torch::zeros({2}).requires_grad_()}, options);
  };
  CHECK_THROWS_WITH(make({.part = 0}), Catch::Contains("part is at least 1, and is 0"));
  CHECK_THROWS_WITH(make({.eps = -1}), Catch::Contains("OffloadedAdamW needs") && Catch::Contains("eps -1"));
}

}  // namespace offloaded_adamw_test
