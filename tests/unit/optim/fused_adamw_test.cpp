// SPDX-License-Identifier: MIT
// FusedAdamW against torch.optim.AdamW, recorded by tests/parity/optimizers.py. What all fused optimizers
// have in common is in fused_optimizer_test.cpp.
#include "support/precompiled.hpp"

#include <looptorch/optim/fused_adamw.hpp>

#include "unit/optim/recorded.hpp"

namespace lt = looptorch;

TEST_CASE("FusedAdamW has PyTorch's numbers") {
  using recorded::compare;
  compare<lt::FusedAdamW>("adamw.default64", torch::kDouble, 1e-13, {});
  compare<lt::FusedAdamW>("adamw.default32", torch::kFloat, 1e-6, {});
  compare<lt::FusedAdamW>("adamw.decay64", torch::kDouble, 1e-13,
                          {.lr = 3e-2, .betas = {0.8, 0.95}, .eps = 1e-6, .weight_decay = 0.3});
  compare<lt::FusedAdamW>("adamw.amsgrad64", torch::kDouble, 1e-13, {.lr = 1e-2, .amsgrad = true});
}

TEST_CASE("FusedAdamW has PyTorch's numbers in two groups") {
  recorded::compare<lt::FusedAdamW>("adamw.groups64", torch::kDouble, 1e-13,
                                    {.lr = 1e-2, .weight_decay = 0.1}, {.lr = 3e-2, .amsgrad = true});
}

TEST_CASE("moments stand in the order of the group's parameters") {
  auto params = recorded::parameters(torch::kFloat);
  lt::FusedAdamW optimizer(params, {.amsgrad = true});
  recorded::run(optimizer, params, 0, 1);
  const lt::FusedAdamW::Moments& moments = optimizer.moments().at(0);
  for (std::size_t i = 0; i < params.size(); ++i) {
    const bool begun = i != 2;  // whose first gradient comes in step 2
    CHECK(moments.first.at(i).defined() == begun);
    CHECK(moments.second.at(i).defined() == begun);
    CHECK(moments.max_second.at(i).defined() == begun);
    CHECK(moments.steps.at(i).defined() == begun);
    if (begun) CHECK(moments.first[i].sizes() == params[i].sizes());
    if (begun) CHECK(moments.steps[i].item<double>() == 1);
  }
  CHECK(lt::FusedAdamW(params).moments().at(0).first.empty());
}

TEST_CASE("FusedAdamW refuses options out of range, with their values") {
  const auto make = [](lt::FusedAdamWOptions options) {
    lt::FusedAdamW(recorded::parameters(torch::kFloat), options);
  };
  CHECK_THROWS_WITH(make({.lr = -1}), Catch::Contains("FusedAdamW needs") && Catch::Contains("lr -1"));
  CHECK_THROWS_WITH(make({.betas = {0.9, 1.0}}), Catch::Contains("0.9 and 1"));
  CHECK_THROWS_AS(make({.eps = NAN}), lt::UsageError);
  CHECK_THROWS_AS(make({.weight_decay = -0.1}), lt::UsageError);
  CHECK_THROWS_AS(lt::FusedAdamW::group({}, {.lr = -1}), lt::UsageError);
}
