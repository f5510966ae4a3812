// SPDX-License-Identifier: MIT
// MixedPrecision on a CPU is Autocast<bf16>; see tests/device/combinations_test.cpp for a device.
#include "support/precompiled.hpp"

#include <looptorch/trainer.hpp>

#include "support/toy.hpp"

#include <limits>

namespace lt = looptorch;

namespace {

template <class Policy>
at::Tensor weights_after(Policy policy) {
  torch::manual_seed(1);
  auto net = toy::net();
  net->to(torch::kFloat);
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  const auto objective = [](toy::Net& net, const at::Tensor& batch) {
    return net->second(net->first(batch)).square().mean();
  };
  lt::Trainer trainer(net, optimizer, objective, lt::Accumulate<2>{}, policy);
  trainer.fit(std::vector<at::Tensor>(4, torch::randn({3, 4})), {.epochs = 2});
  return net->first->weight.detach().clone();
}

}  // namespace

TEST_CASE("MixedPrecision on a CPU is Autocast<bf16>, bit for bit") {
  const at::Tensor weights = weights_after(lt::MixedPrecision{});
  CHECK(weights.equal(weights_after(lt::Autocast<lt::bf16>{})));
  CHECK_FALSE(weights.equal(weights_after(lt::Autocast<lt::fp16>{})));
}

TEST_CASE("MixedPrecision on a CPU scales nothing, saves nothing, and a loss that is NaN ends the fit") {
  auto net = toy::net();
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  double value = 1;
  const auto objective = [&](toy::Net& net, const at::Tensor&) { return net->first->weight.sum() * value; };
  lt::Trainer trainer(net, optimizer, objective, lt::MixedPrecision{});
  trainer.fit(std::vector<at::Tensor>(1, torch::ones({1})));
  CHECK_FALSE(trainer.policy<lt::MixedPrecision>().scale.defined());
  auto other = toy::net();
  torch::optim::SGD its_optimizer(other->parameters(), 0.1);
  lt::Trainer resumed(other, its_optimizer, objective, lt::MixedPrecision{});
  CHECK_NOTHROW(resumed.load_state_dict(trainer.state_dict()));
  value = std::numeric_limits<double>::quiet_NaN();
  CHECK_THROWS_AS(trainer.fit(std::vector<at::Tensor>(1, torch::ones({1})), {.epochs = 2}), lt::NonFiniteLoss);
}
