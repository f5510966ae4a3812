// SPDX-License-Identifier: MIT
// What a run holds, and what it will hold: the forecast before the first step is what is there after it.
#include "support/precompiled.hpp"

#include <looptorch/optim/adamw_bf16.hpp>
#include <looptorch/policies/update_in_backward.hpp>
#include <looptorch/trainer.hpp>

#include "support/toy.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace lt = looptorch;

namespace {

constexpr std::int64_t kCounts = 64;  // bytes of step counts at most, which a forecast leaves out

/// Checks the forecast of `trainer` against what it holds after two epochs, which train all that is trained.
template <class Trainer>
void check_forecast(const std::string& name, Trainer& trainer) {
  INFO(name);
  const lt::HeldMemory expected = trainer.expected_memory();
  CHECK(trainer.held_memory().averages == 0);
  trainer.fit(toy::batches(4), {.epochs = 2});
  const lt::HeldMemory held = trainer.held_memory();
  CHECK(expected.weights == held.weights);
  CHECK(expected.gradients == held.gradients);
  CHECK(expected.optimizer <= held.optimizer);
  CHECK(held.optimizer <= expected.optimizer + kCounts);
  CHECK(expected.averages == held.averages);
  const lt::HeldMemory again = trainer.expected_memory();  // nothing counts twice
  CHECK(again.optimizer == held.optimizer);
  CHECK(again.averages == held.averages);
}

std::int64_t bytes_of(const toy::Net& net) {
  std::int64_t bytes = 0;
  for (const at::Tensor& parameter : net->parameters())
    bytes += static_cast<std::int64_t>(parameter.nbytes());
  return bytes;
}

template <class Optimizer>
std::int64_t check_optimizer(const std::string& name, const toy::Net& net, Optimizer optimizer) {
  lt::Trainer trainer(const_cast<toy::Net&>(net), optimizer, toy::objective);
  const auto expected = trainer.expected_memory();
  check_forecast(name, trainer);
  return expected.optimizer / bytes_of(net);
}

}  // namespace

TEST_CASE("the moments that an optimizer will keep are known before its first step") {
  toy::Net net = toy::net();
  const auto all = [&] { return net->parameters(); };
  using namespace torch::optim;
  CHECK(check_optimizer("FusedAdamW", net, lt::FusedAdamW(all())) == 2);
  CHECK(check_optimizer("FusedAdam, amsgrad", net, lt::FusedAdam(all(), {.amsgrad = true})) == 3);
  CHECK(check_optimizer("FusedSGD", net, lt::FusedSGD(all(), {.lr = 0.1})) == 0);
  CHECK(check_optimizer("FusedSGD, momentum", net, lt::FusedSGD(all(), {.lr = 0.1, .momentum = 0.9})) == 1);
  CHECK(check_optimizer("SGD", net, SGD(all(), 0.1)) == 0);
  CHECK(check_optimizer("SGD, momentum", net, SGD(all(), SGDOptions(0.1).momentum(0.9))) == 1);
  CHECK(check_optimizer("Adam", net, Adam(all())) == 2);
  CHECK(check_optimizer("AdamW, amsgrad", net, AdamW(all(), AdamWOptions().amsgrad(true))) == 3);
  CHECK(check_optimizer("RMSprop", net, RMSprop(all(), RMSpropOptions().momentum(0.1).centered(true))) == 3);
  CHECK(check_optimizer("Adagrad", net, Adagrad(all())) == 1);
}

TEST_CASE("a forecast has averages, and layers that are unfrozen later") {
  toy::Net net = toy::net();
  lt::FusedAdamW adamw(net->parameters());
  lt::Trainer trainer(net, adamw, toy::objective, lt::UnfreezeAt{{.epoch = 1, .patterns = {"first.*"}}},
                      lt::AverageWeights{});
  net->first->weight.requires_grad_(false);
  CHECK(trainer.expected_memory().gradients == bytes_of(net));
  CHECK(trainer.expected_memory().averages == bytes_of(net));
  check_forecast("UnfreezeAt, AverageWeights", trainer);
}

TEST_CASE("averages of 16-bit weights are forecast as the fp32 numbers that they are") {
  toy::Net net = toy::net();
  net->to(at::kBFloat16);
  lt::AdamWBf16 optimizer(net->parameters());
  lt::Trainer trainer(net, optimizer, toy::objective, lt::AverageWeights{});
  CHECK(trainer.expected_memory().averages == 2 * bytes_of(net));
}

TEST_CASE("where gradients are applied in backward, only their sums are held") {
  toy::Net net = toy::net();
  std::int64_t elements = 0;
  for (const auto& parameter : net->parameters()) elements += parameter.numel();
  lt::FusedAdamW adamw(net->parameters());
  const auto forecast = [&](const std::string& name, auto... policies) {
    lt::Trainer trainer(net, adamw, toy::objective, policies...);
    const auto gradients = trainer.expected_memory().gradients;
    check_forecast(name, trainer);
    return gradients;
  };
  CHECK(forecast("immediate", lt::UpdateInBackward{}) == 0);
  CHECK(forecast("in moments", lt::Accumulate<2>{}, lt::UpdateInBackward<lt::SumsInMoments>{}) == 0);
  CHECK(forecast("in bf16", lt::Accumulate<2>{},
                 lt::UpdateInBackward<lt::SumsInBf16>{.sums = {.min_size = 1}}) == 2 * elements);
  CHECK(forecast("in bf16, in windows of one micro-batch",
                 lt::UpdateInBackward<lt::SumsInBf16>{.sums = {.min_size = 1}}) == 0);
  CHECK(forecast("small ones as they are", lt::Accumulate<2>{},
                 lt::UpdateInBackward<lt::SumsInBf16>{.sums = {.min_size = 1 << 20}}) == bytes_of(net));
  CHECK(forecast("switched off", lt::When{false, lt::UpdateInBackward{}}) == bytes_of(net));
}

TEST_CASE("frozen parameters have neither gradients nor moments nor averages in a forecast") {
  toy::Net net = toy::net();
  for (auto& parameter : net->first->parameters()) parameter.requires_grad_(false);
  std::int64_t of_second = 0;
  for (const auto& parameter : net->second->parameters())
    of_second += static_cast<std::int64_t>(parameter.nbytes());
  lt::FusedAdamW adamw(net->parameters());
  lt::Trainer trainer(net, adamw, toy::objective, lt::AverageWeights{});
  const auto expected = trainer.expected_memory();
  CHECK(expected.weights == bytes_of(net));
  CHECK(expected.gradients == of_second);
  CHECK(expected.optimizer == 2 * of_second);
  CHECK(expected.averages == of_second);
  check_forecast("frozen", trainer);
  lt::Trainer off(net, adamw, toy::objective, lt::When{false, lt::AverageWeights{}});
  CHECK(off.expected_memory().averages == 0);
}

TEST_CASE("asking for memory in the middle of a window leaves the window open") {
  const auto batches = toy::batches(6);
  toy::Net net = toy::net();
  torch::optim::SGD first(net->parameters(), 0.1), second(net->parameters(), 0.1);
  lt::Trainer trainer(net, first, toy::objective, lt::Accumulate<2>{});
  lt::Trainer other(net, second, toy::objective, lt::Accumulate<2>{});
  trainer.step(batches[0]);
  (void)trainer.held_memory();
  (void)trainer.expected_memory();
  CHECK_THROWS_AS(trainer.state_dict(), lt::UsageError);
  CHECK_THROWS_AS(trainer.fit(batches), lt::UsageError);
  CHECK_THROWS_AS(other.step(batches[1]), lt::UsageError);
  trainer.finish();
}
