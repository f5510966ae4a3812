// SPDX-License-Identifier: MIT
// Autocast<> on a CPU is Autocast<bf16>, or what its type says; see tests/device/combinations_test.cpp
// for a device.
// Tests policies: autocast
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

TEST_CASE("Autocast<> on a CPU is Autocast<bf16>, bit for bit") {
  const at::Tensor weights = weights_after(lt::Autocast<>{});
  CHECK(weights.equal(weights_after(lt::Autocast<lt::bf16>{})));
  CHECK_FALSE(weights.equal(weights_after(lt::Autocast<lt::fp16>{})));
}

TEST_CASE("Autocast<> of a type is Autocast of it, bit for bit, and another type is refused") {
  CHECK(weights_after(lt::Autocast<>{.type = at::kHalf}).equal(weights_after(lt::Autocast<lt::fp16>{})));
  CHECK(weights_after(lt::Autocast<>{.type = at::kBFloat16}).equal(weights_after(lt::Autocast<lt::bf16>{})));
  CHECK_THROWS_AS(weights_after(lt::Autocast<>{.type = at::kDouble}), lt::UsageError);
  CHECK_THROWS_WITH(weights_after(lt::Autocast<>{.type = at::kDouble}),
                    "Autocast<>'s type is Half or BFloat16, got Double");
}

TEST_CASE("Autocast<>'s state has its type: another one is a difference, and continues by the device's") {
  auto net = toy::net();
  net->to(torch::kFloat);
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  const auto objective = [](toy::Net& net, const at::Tensor& batch) {
    return net->first(batch).square().mean();
  };
  const auto state_of = [&](lt::Autocast<> policy) {
    lt::Trainer trainer(net, optimizer, objective, policy);
    trainer.fit(std::vector<at::Tensor>(1, torch::ones({1, 4})));
    return trainer.state_dict();
  };
  const auto half = state_of({.fp16_scale = {.initial_scale = 8}, .type = at::kHalf});
  const auto brain = state_of({.type = at::kBFloat16}), on_cpu = state_of({});
  lt::Trainer trainer(net, optimizer, objective, lt::Autocast<>{.type = at::kHalf});
  CHECK_THROWS_WITH(trainer.load_state_dict(brain),
                    Catch::Contains("the 16-bit type is fp16 here, bf16 in the state"));
  CHECK_THROWS_WITH(trainer.load_state_dict(on_cpu), Catch::Contains("fp16 here, bf16 in the state"));
  trainer.load_state_dict(half);
  CHECK(trainer.policy<lt::Autocast<>>().scale.item<double>() == 8);
  lt::Trainer other(net, optimizer, objective, lt::Autocast<>{.type = at::kBFloat16});
  CHECK_THROWS_WITH(other.load_state_dict(half), Catch::Contains("bf16 here, fp16 in the state"));
  CHECK_NOTHROW(other.load_state_dict(on_cpu));
  lt::Trainer by_device(net, optimizer, objective, lt::Autocast<>{});
  CHECK_NOTHROW(by_device.load_state_dict(half));
}

TEST_CASE("Autocast<> on a CPU scales nothing, saves nothing, and a loss that is NaN ends the fit") {
  auto net = toy::net();
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  double value = 1;
  const auto objective = [&](toy::Net& net, const at::Tensor&) { return net->first->weight.sum() * value; };
  lt::Trainer trainer(net, optimizer, objective, lt::Autocast<>{});
  trainer.fit(std::vector<at::Tensor>(1, torch::ones({1})));
  CHECK_FALSE(trainer.policy<lt::Autocast<>>().scale.defined());
  auto other = toy::net();
  torch::optim::SGD its_optimizer(other->parameters(), 0.1);
  lt::Trainer resumed(other, its_optimizer, objective, lt::Autocast<>{});
  CHECK_NOTHROW(resumed.load_state_dict(trainer.state_dict()));
  value = std::numeric_limits<double>::quiet_NaN();
  CHECK_THROWS_AS(trainer.fit(std::vector<at::Tensor>(1, torch::ones({1})), {.epochs = 2}),
                  lt::NonFiniteLoss);
}
