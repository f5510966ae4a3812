// SPDX-License-Identifier: MIT
// FusedAdam against torch.optim.Adam, recorded by tests/parity/optimizers.py. What all fused optimizers have
// in common is in fused_optimizer_test.cpp.
// Tests optim/fused: adam_rule
#include "support/precompiled.hpp"

#include <looptorch/optim/fused_adam.hpp>

#include "unit/optim/recorded.hpp"

namespace lt = looptorch;

TEST_CASE("FusedAdam has PyTorch's numbers") {
  using recorded::compare;
  compare<lt::FusedAdam>("adam.default64", torch::kDouble, 1e-13, {});
  compare<lt::FusedAdam>("adam.default32", torch::kFloat, 1e-6, {});
  compare<lt::FusedAdam>("adam.decay64", torch::kDouble, 1e-13,
                         {.lr = 3e-2, .betas = {0.8, 0.95}, .eps = 1e-6, .weight_decay = 0.3});
  compare<lt::FusedAdam>("adam.amsgrad64", torch::kDouble, 1e-13, {.lr = 1e-2, .amsgrad = true});
}

TEST_CASE("FusedAdam has PyTorch's numbers in two groups") {
  recorded::compare<lt::FusedAdam>("adam.groups64", torch::kDouble, 1e-13, {.lr = 1e-2, .weight_decay = 0.1},
                                   {.lr = 3e-2, .amsgrad = true});
}

TEST_CASE("FusedAdam refuses options out of range, with their values") {
  const auto make = [](lt::FusedAdamOptions options) {
    lt::FusedAdam(recorded::parameters(torch::kFloat), options);
  };
  CHECK_THROWS_WITH(make({.lr = -1}), Catch::Contains("FusedAdam needs") && Catch::Contains("lr -1"));
  CHECK_THROWS_WITH(make({.betas = {0.9, 1.0}}), Catch::Contains("0.9 and 1"));
  CHECK_THROWS_AS(make({.betas = {-0.1, 0.9}}), lt::UsageError);
  CHECK_THROWS_AS(make({.eps = NAN}), lt::UsageError);
  CHECK_THROWS_AS(make({.weight_decay = -0.1}), lt::UsageError);
  CHECK_THROWS_AS(lt::FusedAdam::group({}, {.lr = -1}), lt::UsageError);
}
