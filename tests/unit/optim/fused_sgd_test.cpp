// SPDX-License-Identifier: MIT
// FusedSGD against torch.optim.SGD, recorded by tests/parity/optimizers.py. What all fused optimizers have in
// common is in fused_optimizer_test.cpp.
#include "support/precompiled.hpp"

#include <looptorch/optim/fused_sgd.hpp>

#include "unit/optim/recorded.hpp"

namespace lt = looptorch;
using recorded::flat;

TEST_CASE("FusedSGD has PyTorch's numbers without momentum, and keeps nothing") {
  recorded::compare<lt::FusedSGD>("sgd.plain64", torch::kDouble, 1e-13, {.lr = 1e-2});
  recorded::compare<lt::FusedSGD>("sgd.plain32", torch::kFloat, 1e-6, {.lr = 1e-2});
  recorded::compare<lt::FusedSGD>("sgd.decay64", torch::kDouble, 1e-13, {.lr = 1e-2, .weight_decay = 0.3});
}

TEST_CASE("FusedSGD has PyTorch's numbers with momentum, nesterov and dampening") {
  recorded::compare<lt::FusedSGD>("sgd.momentum64", torch::kDouble, 1e-13, {.lr = 1e-2, .momentum = 0.9});
  recorded::compare<lt::FusedSGD>("sgd.momentum32", torch::kFloat, 1e-5, {.lr = 1e-2, .momentum = 0.9});
  recorded::compare<lt::FusedSGD>("sgd.nesterov64", torch::kDouble, 1e-13,
                                  {.lr = 1e-2, .momentum = 0.8, .weight_decay = 0.1, .nesterov = true});
  recorded::compare<lt::FusedSGD>("sgd.dampening64", torch::kDouble, 1e-13,
                                  {.lr = 1e-2, .momentum = 0.9, .dampening = 0.4, .weight_decay = 0.1});
  recorded::compare<lt::FusedSGD>("sgd.dampening32", torch::kFloat, 1e-5,
                                  {.lr = 1e-2, .momentum = 0.9, .dampening = 0.4});
}

TEST_CASE("FusedSGD has PyTorch's numbers in two groups") {
  recorded::compare<lt::FusedSGD>("sgd.groups64", torch::kDouble, 1e-13,
                                  {.lr = 1e-2, .momentum = 0.9, .nesterov = true},
                                  {.lr = 3e-2, .weight_decay = 0.1});
}

TEST_CASE("an overflowed first step leaves the next one the first, undamped") {
  const lt::FusedSGDOptions options{.lr = 1e-2, .momentum = 0.9, .dampening = 0.4};
  auto plain = recorded::parameters(torch::kFloat), skipped = recorded::parameters(torch::kFloat);
  lt::FusedSGD one(plain, options), two(skipped, options);
  for (auto& parameter : skipped) parameter.mutable_grad() = torch::full_like(parameter, INFINITY);
  two.step({}, torch::tensor(true));
  CHECK(two.state_of(skipped[0]).empty());
  for (int64_t step = 0; step < recorded::kSteps; ++step) {
    recorded::set_gradients(plain, step), recorded::set_gradients(skipped, step);
    one.step();
    two.step({}, torch::tensor(false));
    CHECK(flat(skipped).equal(flat(plain)));
  }
}

TEST_CASE("fp16 and bf16 parameters on a CPU step as fp32 ones do, rounded") {
  for (const auto type : {torch::kHalf, torch::kBFloat16}) {
    const lt::FusedSGDOptions options{.lr = 1e-2, .momentum = 0.9, .weight_decay = 0.1, .nesterov = true};
    const auto start = torch::linspace(-1, 1, 100).to(type);
    const auto gradient = torch::linspace(3, -2, 100).to(type);
    auto narrow = start.clone().requires_grad_(), wide = start.to(torch::kFloat).requires_grad_();
    lt::FusedSGD one({narrow}, options), two({wide}, options);
    for (int64_t step = 0; step < 3; ++step) {
      narrow.mutable_grad() = gradient.clone(), wide.mutable_grad() = gradient.to(torch::kFloat);
      one.step(), two.step();
      const auto momentum = two.state_of(wide).get<at::Tensor>("momentum_buffer");
      torch::NoGradGuard no_grad;  // the next step starts from what narrow numbers hold
      wide.copy_(wide.to(type)), momentum.copy_(momentum.to(type));
      CHECK(narrow.to(torch::kFloat).equal(wide));
      CHECK(one.state_of(narrow).get<at::Tensor>("momentum_buffer").to(torch::kFloat).equal(momentum));
    }
    CHECK_FALSE(narrow.equal(start));
  }
}

TEST_CASE("FusedSGD refuses options out of range, with their values") {
  const auto make = [](lt::FusedSGDOptions options) {
    lt::FusedSGD(recorded::parameters(torch::kFloat), options);
  };
  CHECK_THROWS_WITH(make({.lr = -1}), Catch::Contains("lr -1"));
  CHECK_THROWS_WITH(make({.momentum = -0.5}), Catch::Contains("momentum -0.5"));
  CHECK_THROWS_WITH(make({.momentum = 0.5, .dampening = NAN}), Catch::Contains("dampening nan"));
  CHECK_THROWS_AS(make({.weight_decay = -0.1}), lt::UsageError);
  CHECK_THROWS_WITH(make({.nesterov = true}), Catch::Contains("nesterov needs momentum"));
  CHECK_THROWS_WITH(make({.momentum = 0.9, .dampening = 0.25, .nesterov = true}),
                    Catch::Contains("dampening 0.25"));
  CHECK_THROWS_AS(lt::FusedSGD::group({}, {.lr = NAN}), lt::UsageError);
}
