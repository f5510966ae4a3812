// SPDX-License-Identifier: MIT
// Runs on every device.
#include "support/precompiled.hpp"

#include <looptorch/optim/gradients/frozen_scope.hpp>

#include "support/place.hpp"

#include <vector>

namespace lt = looptorch;
using looptorch::testing::placed;

TEST_CASE("a frozen scope restores exactly the flags that it changed") {
  std::vector<at::Tensor> parameters{placed(torch::ones({1})).requires_grad_(), placed(torch::ones({1}))};
  {
    const lt::detail::FrozenScope frozen(parameters);
    CHECK_FALSE(parameters[0].requires_grad());
  }
  CHECK(parameters[0].requires_grad());
  CHECK_FALSE(parameters[1].requires_grad());
}
