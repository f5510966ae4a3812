// SPDX-License-Identifier: MIT
// Windows that fail leave nothing behind: each of these cases was wrong once.
// Tests loop/step: micro_batch, streamed_window, window, window_losses
#include "support/precompiled.hpp"

#include <looptorch/trainer.hpp>

#include "support/toy.hpp"

#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <vector>

namespace lt = looptorch;

namespace {

using Optimizer = lt::FusedAdamW;

double rate(torch::optim::Optimizer& optimizer, std::size_t group) {
  return optimizer.param_groups()[group].options().get_lr();
}

}  // namespace

TEST_CASE("an update that was skipped in a window which then failed does not hold its schedule back") {
  auto net = toy::net();
  bool fail = true;
  torch::optim::SGD first(net->first->parameters(), 0.1), second(net->second->parameters(), 0.1);
  auto objective = [&](toy::Net& model, const toy::Batch& batch) {
    if (fail) throw std::runtime_error("pulled");
    return toy::objective(model, batch);
  };
  std::vector<double> rates;
  lt::Trainer trainer(net, lt::Update{first, toy::objective}, lt::Update{second, objective},
                      lt::ScheduleLr{.decay = lt::ConstantLr{}, .warmup_steps = 2},
                      lt::On{lt::kUpdate, [&](lt::UpdateContext& update) {
                               if (update.index() == 0) update.veto(fail), rates.push_back(rate(first, 0));
                             }});
  CHECK_THROWS_WITH(trainer.fit(toy::batches(4), {.epochs = 1}), "pulled");
  CHECK(trainer.updates()[0].skipped == 0);
  CHECK(trainer.progress().skipped == 0);
  fail = false;
  rates.clear();
  trainer.fit(toy::batches(4), {.epochs = 1});
  CHECK(rates == std::vector<double>{0, 0.05, 0.1, 0.1});
}

TEST_CASE("what a failed window had still to say does not come out in a later one") {
  auto net = toy::net();
  bool fail = true;
  lt::FusedSGD first(net->first->parameters(), {.lr = 0.1}), second(net->second->parameters(), {.lr = 0.1});
  auto poisoned = [&](toy::Net& model, const toy::Batch& batch) {
    lt::Loss loss = toy::objective(model, batch);
    if (fail) loss.value = loss.value * NAN;
    return loss;
  };
  auto failing = [&](toy::Net& model, const toy::Batch& batch) {
    if (fail) throw std::runtime_error("pulled");
    return toy::objective(model, batch);
  };
  lt::Trainer trainer(net, lt::Update{first, poisoned}, lt::Update{second, failing});
  const auto data = toy::batches(2);
  CHECK_THROWS_WITH(trainer.step(data[0]), "pulled");
  fail = false;
  CHECK(trainer.step(data[1]).step == 1);
}

TEST_CASE("a hook that throws in a window that is no number: the next batch is not blamed") {
  auto net = toy::net();
  bool fail = true;
  lt::FusedSGD optimizer(net->parameters(), {.lr = 0.1});
  auto objective = [&](toy::Net& model, const toy::Batch& batch) {
    lt::Loss loss = toy::objective(model, batch);
    if (fail) loss.value = loss.value * NAN;
    return loss;
  };
  lt::Trainer trainer(net, optimizer, objective, lt::On{lt::kObserve, [&](lt::WindowContext&) {
                                                          if (fail) throw std::runtime_error("hook");
                                                        }});
  const auto data = toy::batches(2);
  CHECK_THROWS_WITH(trainer.step(data[0]), "hook");
  fail = false;
  CHECK(trainer.step(data[1]).step == 2);
}

TEST_CASE("an epoch whose last window failed is ended by the next fit, also where max_steps is reached") {
  auto net = toy::net();
  lt::FusedSGD optimizer(net->parameters(), {.lr = 0.1});
  std::int64_t ended = 0;
  lt::Trainer trainer(net, optimizer, toy::objective, lt::On{lt::kObserve, [&](lt::EpochContext& epoch) {
                                                               ended = epoch.run.progress().epoch;
                                                             }});
  auto data = toy::batches(3);
  data[2].features = torch::full_like(data[2].features, NAN);
  CHECK_THROWS_AS(trainer.fit(data, {.epochs = 1, .max_steps = 3}), lt::NonFiniteLoss);
  CHECK(trainer.fit(data, {.epochs = 1, .max_steps = 3}).status == lt::FitStatus::completed);
  CHECK(ended == 1);
}

TEST_CASE("a loop of step is settled before a fit's policies begin") {
  auto net = toy::net();
  lt::FusedSGD optimizer(net->parameters(), {.lr = 0.5});
  const auto data = toy::batches(4);
  const auto averages = [&](bool finish) {
    torch::manual_seed(1);
    auto own = toy::net();
    lt::FusedSGD sgd(own->parameters(), {.lr = 0.5});
    lt::Trainer trainer(own, sgd, toy::objective, lt::AverageWeights{lt::Ema{.decay = 0.5}});
    trainer.step(data[0]), trainer.step(data[1]);
    if (finish) trainer.finish_window();
    trainer.fit(std::vector<toy::Batch>{data[2], data[3]}, {.epochs = 1});
    return trainer.state_dict();
  };
  const lt::StateDict plain = averages(false), finished = averages(true);
  for (const auto& [key, value] : finished.values())
    if (const auto* tensor = value.get_if<at::Tensor>(); tensor && tensor->defined())
      CHECK(plain.get<at::Tensor>(key).equal(*tensor));
}
