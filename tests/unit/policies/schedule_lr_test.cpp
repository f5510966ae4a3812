// SPDX-License-Identifier: MIT
// ScheduleLr against transformers' schedules, recorded by tests/parity/training.py.
#include "support/precompiled.hpp"

#include <looptorch/trainer.hpp>

#include "support/reference.hpp"
#include "support/toy.hpp"

namespace lt = looptorch;

namespace {

/// The learning rate of each step's update, as the optimizer met it.
std::vector<double> rates(lt::ScheduleLr schedule, lt::FitOptions options, int64_t batches = 10) {
  auto net = toy::net();
  torch::optim::SGD sgd(net->parameters(), 0.5);
  std::vector<double> seen;
  lt::Trainer trainer(net, sgd, toy::objective, schedule,
                      lt::On{lt::kUpdate, [&](lt::UpdateContext& update) {
                               seen.push_back(update.optimizer().param_groups()[0].options().get_lr());
                             }});
  trainer.fit(toy::batches(batches), options);
  return seen;
}

void compare(const std::vector<double>& seen, const std::string& name) {
  const auto recorded = reference::tensors("training").at("schedule." + name);
  for (std::size_t i = 0; i < seen.size(); ++i)
    CHECK(seen[i] == Approx(recorded[static_cast<int64_t>(i)].item<double>()).margin(1e-14));
}

}  // namespace

TEST_CASE("linear and cosine with warm-up are transformers'") {
  compare(rates({.decay = lt::Decay::linear, .warmup_steps = 5}, {.max_steps = 20}), "linear");
  compare(rates({.decay = lt::Decay::cosine, .warmup_steps = 5}, {.max_steps = 20}), "cosine");
  compare(rates({.decay = lt::Decay::linear}, {.max_steps = 20}), "linear_no_warmup");
  compare(rates({.decay = lt::Decay::constant, .warmup_steps = 5}, {.max_steps = 25}), "constant");
  compare(rates({.warmup_steps = 5, .total_steps = 20}, {.max_steps = 25}), "linear");
}

TEST_CASE("the end comes from the epochs of a sized range too, in windows") {
  compare(rates({.warmup_steps = 5}, {.epochs = 2}), "linear");
  auto net = toy::net();
  torch::optim::SGD sgd(net->parameters(), 0.5);
  lt::Trainer trainer(net, sgd, toy::objective, lt::ScheduleLr{}, lt::Accumulate<3>{});
  trainer.fit(toy::batches(10), {.epochs = 2});
  CHECK(trainer.policy<lt::ScheduleLr>().total_steps == 8);
  CHECK(sgd.param_groups()[0].options().get_lr() == 0.0);
}

TEST_CASE("a second fit keeps the full rate that the first began with") {
  auto net = toy::net();
  torch::optim::SGD sgd(net->parameters(), 0.5);
  lt::Trainer trainer(net, sgd, toy::objective, lt::ScheduleLr{.total_steps = 20});
  trainer.fit(toy::batches(10), {.epochs = 1});
  CHECK(sgd.param_groups()[0].options().get_lr() == Approx(0.25));
  trainer.fit(toy::batches(10), {.max_steps = 15});
  CHECK(sgd.param_groups()[0].options().get_lr() == Approx(0.125));
}

TEST_CASE("every group of every update follows, as a share of its own rate") {
  auto net = toy::net();
  lt::FusedAdamW adam({lt::FusedAdamW::group(net->first->parameters(), {.lr = 1.0}),
                       lt::FusedAdamW::group(net->second->parameters(), {.lr = 0.1})});
  torch::optim::SGD sgd(net->first->parameters(), 0.5);
  lt::Trainer trainer(net, lt::Update{adam, toy::objective}, lt::Update{sgd, toy::objective},
                      lt::ScheduleLr{.final_ratio = 0.5});
  trainer.fit(toy::batches(4));
  CHECK(adam.param_groups()[0].options().get_lr() == Approx(0.5));
  CHECK(adam.param_groups()[1].options().get_lr() == Approx(0.05));
  CHECK(sgd.param_groups()[0].options().get_lr() == Approx(0.25));
}

TEST_CASE("a skipped window does not move the schedule") {
  auto net = toy::net();
  torch::optim::SGD sgd(net->parameters(), 0.5);
  lt::Trainer trainer(net, sgd, toy::objective, lt::ScheduleLr{.total_steps = 10},
                      lt::On{lt::kClip, [](lt::UpdateContext& update) {
                               if (update.run.progress().step == 1) update.veto();
                             }});
  const auto result = trainer.fit(toy::batches(4));
  CHECK(result.skipped == 1);
  CHECK(sgd.param_groups()[0].options().get_lr() == Approx(0.5 * 0.7));
}

TEST_CASE("a decay whose end nobody knows, and impossible options, are refused") {
  auto net = toy::net();
  torch::optim::SGD sgd(net->parameters(), 0.5);
  lt::Trainer trainer(net, sgd, toy::objective, lt::ScheduleLr{});
  CHECK_THROWS_WITH(trainer.step(toy::batches(1)[0]), Catch::Contains("where its decay ends"));
  CHECK_THROWS_WITH(rates({.warmup_steps = -1}, {}), Catch::Contains("-1"));
  CHECK_THROWS_WITH(rates({.final_ratio = 1.5}, {}), Catch::Contains("1.5"));
}
