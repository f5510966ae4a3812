// SPDX-License-Identifier: MIT
// Tests loop/step: fit_events
// A caller's own loop and its end: what a fit's end does, why the loop was to end, and a window that was left
// open.
#include "support/precompiled.hpp"

#include <looptorch/loop/step/own_loop.hpp>
#include <looptorch/policies.hpp>
#include <looptorch/state/snapshot/choose_snapshot.hpp>
#include <looptorch/trainer.hpp>

#include "support/temporary_folder.hpp"
#include "support/toy.hpp"
#include "support/warnings.hpp"

#include <cmath>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace lt = looptorch;
using looptorch::testing::Warnings;

namespace {

torch::optim::SGD sgd(toy::Net& net) {
  return torch::optim::SGD(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
}

/// Notes how fits began and ended.
struct NoteFits {
  int* begins;
  std::vector<std::string>* ends;
  void on_fit_begin(lt::FitContext&) const { ++*begins; }
  void on_fit_end(lt::FitContext& fit) const { ends->emplace_back(to_string(fit.status)); }
};

/// Stops the run, or interrupts it, at the end of the step with this number.
auto end_at(std::int64_t step, bool interrupts) {
  return lt::On{lt::kObserve, [=](lt::WindowContext& window) {
                  if (window.run.progress().step != step) return;
                  interrupts ? window.run.interrupt("time to go") : window.run.stop("good enough");
                }};
}

}  // namespace

TEST_CASE("own loop: finish makes a fit's end: best weights, last snapshot, full rates") {
  const lt::testing::TemporaryFolder folder;
  const auto data = toy::batches(6);
  const std::vector<double> values{3.0, 1.0, 2.0};
  const auto train = [&](bool by_hand, const std::string& name) {
    auto net = toy::net();
    auto optimizer = sgd(net);
    std::size_t evaluations = 0;
    const auto next = [&](toy::Net&, const toy::Batch&) { return values.at(evaluations++); };
    lt::Trainer trainer(net, optimizer, toy::objective, lt::Accumulate<2>{},
                        lt::Validate{toy::batches(1), next, {.every = 1}}, lt::RestoreBest{},
                        lt::ScheduleLr{.decay = lt::LinearDecay{.total_steps = 6}},
                        lt::SnapshotEvery{.folder = folder / name});
    lt::FitResult result;
    if (by_hand) {
      for (const auto& batch : data) trainer.step(batch);
      result = trainer.finish();
    } else {
      result = trainer.fit(data);
    }
    CHECK(result.status == lt::FitStatus::completed);
    CHECK(result.steps == 3);
    CHECK(result.reason.empty());
    CHECK(result.seconds > 0.0);
    CHECK(trainer.policy<lt::RestoreBest>().restored);
    CHECK(trainer.policy<lt::RestoreBest>().best.step() == 2);
    CHECK(optimizer.param_groups()[0].options().get_lr() == 0.1);
    return std::pair(net, result.loss);
  };
  auto [own, own_loss] = train(true, "own");
  auto [fitted, loss] = train(false, "fit");
  CHECK(toy::distance(own, fitted) == 0.0);
  CHECK(own_loss == loss);
  const auto last = lt::choose_snapshot("auto", folder / "own");
  const auto same = lt::choose_snapshot("auto", folder / "fit");
  REQUIRE(last.path.filename() == "step-00000003");
  CHECK(last.path.filename() == same.path.filename());
}

TEST_CASE("own loop: finish makes the updates of a window that is open, once") {
  const auto data = toy::batches(3);
  auto own = toy::net(), fitted = toy::net();
  auto a = sgd(own), b = sgd(fitted);
  lt::Trainer by_hand(own, a, toy::objective, lt::Accumulate<2>{});
  for (const auto& batch : data) by_hand.step(batch);
  CHECK(by_hand.finish().steps == 2);
  lt::Trainer by_fit(fitted, b, toy::objective, lt::Accumulate<2>{});
  by_fit.fit(data);
  CHECK(toy::distance(own, fitted) == 0.0);
  CHECK_FALSE(toy::has_gradients(own));
}

TEST_CASE("own loop: a step and the end say that the loop was to end, and why") {
  for (const bool interrupts : {false, true}) {
    auto net = toy::net();
    auto optimizer = sgd(net);
    lt::Trainer trainer(net, optimizer, toy::objective, end_at(2, interrupts));
    std::int64_t steps = 0;
    for (const auto& batch : toy::batches(5)) {
      const lt::StepResult result = trainer.step(batch);
      ++steps;
      CHECK(result.stop_requested == (steps == 2));
      CHECK(result.interrupted == (steps == 2 && interrupts));
      CHECK(result.reason == (steps < 2 ? "" : interrupts ? "time to go" : "good enough"));
      if (result.stop_requested) break;
    }
    const auto result = trainer.finish();
    CHECK(steps == 2);
    CHECK(result.status == (interrupts ? lt::FitStatus::interrupted : lt::FitStatus::stopped));
    CHECK(result.reason == (interrupts ? "time to go" : "good enough"));
    lt::Trainer again(net, optimizer, toy::objective, end_at(2, interrupts));
    const auto stopped = again.restore(trainer.snapshot()).stopped;
    CHECK(stopped == (interrupts ? std::nullopt : std::optional<std::string>("good enough")));
  }
}

TEST_CASE("own loop: the mean of a part follows from two readings of the totals") {
  auto net = toy::net();
  auto optimizer = sgd(net);
  double expected = 0;
  const auto noted = [&](toy::Net& of, const toy::Batch& batch) {
    const lt::Loss loss = lt::detail::as_loss(toy::objective(of, batch));
    expected = loss.value.item<double>();
    return loss;
  };
  lt::Trainer trainer(net, optimizer, noted);
  const auto data = toy::batches(2);
  trainer.step(data[0]);
  const lt::WeightedSum before = trainer.updates()[0].loss.totals();
  trainer.step(data[1]);
  const lt::WeightedSum after = trainer.updates()[0].loss.totals();
  CHECK((after.sum - before.sum) / (after.weight - before.weight) == Approx(expected));
}

TEST_CASE("own loop: the means begin with each loop, and go on in a restored one") {
  auto net = toy::net();
  auto optimizer = sgd(net);
  lt::WeightedSum expected;
  const auto noted = [&](toy::Net& of, const toy::Batch& batch) {
    lt::Loss loss = toy::objective(of, batch);
    expected.sum += loss.value.item<double>() * loss.weight.number();
    expected.weight += loss.weight.number();
    loss.metrics = {{"same", loss.value}};
    return loss;
  };
  const auto data = toy::batches(4);
  lt::Trainer trainer(net, optimizer, noted);
  trainer.fit(data);
  for (int loop = 0; loop < 2; ++loop) {
    expected = {};
    for (const auto& batch : data) trainer.step(batch);
    CHECK(trainer.updates()[0].loss.mean() == Approx(expected.mean()).epsilon(1e-12));
    CHECK(trainer.updates()[0].metrics.at("same").mean() == Approx(expected.mean()).epsilon(1e-12));
    if (loop == 0) CHECK(trainer.finish().loss == Approx(expected.mean()).epsilon(1e-12));
  }
  trainer.load_state_dict(trainer.state_dict());
  trainer.step(data[0]);
  CHECK(trainer.finish().loss == Approx(expected.mean()).epsilon(1e-12));
}

TEST_CASE("own loop: a fit that is refused within a window leaves the loop and the window as they were") {
  const auto data = toy::batches(2);
  int begins = 0;
  std::vector<std::string> ends;
  const auto train = [&](bool fits) {
    auto net = toy::net();
    auto optimizer = sgd(net);
    lt::Trainer trainer(net, optimizer, toy::objective, lt::Accumulate<2>{}, NoteFits{&begins, &ends});
    trainer.step(data[0]);
    if (fits) CHECK_THROWS_AS(trainer.fit(data), lt::UsageError);
    trainer.step(data[1]);
    return net;
  };
  auto net = train(true), undisturbed = train(false);
  CHECK(toy::distance(net, undisturbed) == 0.0);
  CHECK(begins == 2);
}

TEST_CASE("own loop: policies begin and end once a loop, also one without a step") {
  const auto data = toy::batches(2);
  auto net = toy::net();
  auto optimizer = sgd(net);
  int begins = 0;
  std::vector<std::string> ends;
  lt::Trainer trainer(net, optimizer, toy::objective, NoteFits{&begins, &ends});
  for (int loop = 1; loop <= 2; ++loop) {
    for (const auto& batch : data) trainer.step(batch);
    trainer.finish();
    CHECK(begins == loop);
    CHECK(ends == std::vector<std::string>(static_cast<std::size_t>(loop), "completed"));
  }
  CHECK(trainer.finish().status == lt::FitStatus::nothing_left);
  CHECK(begins == 3);
  CHECK(ends.back() == "nothing_left");
  CHECK(trainer.progress().step == 4);
  trainer.fit(data);
  CHECK(begins == 4);
  CHECK(ends.size() == 4);
}

TEST_CASE("own loop: policies end as failed if the last window fails") {
  auto net = toy::net();
  auto optimizer = sgd(net);
  int begins = 0;
  std::vector<std::string> ends;
  const auto poisoned = [](toy::Net& net, const toy::Batch& batch) {
    return toy::objective(net, batch).value * std::nan("");
  };
  lt::Trainer trainer(net, optimizer, poisoned, lt::Accumulate<2>{}, NoteFits{&begins, &ends});
  trainer.step(toy::batches(1)[0]);
  CHECK_THROWS_AS(trainer.finish(), lt::NonFiniteLoss);
  CHECK(ends == std::vector<std::string>{"failed"});
}

TEST_CASE(
    "own loop: a Trainer that is destroyed with an open window says so, once, and not under an exception") {
  const auto data = toy::batches(3);
  auto net = toy::net();
  auto optimizer = sgd(net);
  Warnings warnings;
  const auto train = [&](bool finishes, bool throws) {
    lt::Trainer trainer(net, optimizer, toy::objective, lt::Accumulate<2>{});
    for (const auto& batch : data) trainer.step(batch);
    lt::Trainer moved(std::move(trainer));
    if (finishes) moved.finish_window();
    if (throws) throw std::runtime_error("as it happens");
  };
  train(true, false);
  CHECK_THROWS_AS(train(false, true), std::runtime_error);
  CHECK(warnings.texts.empty());
  train(false, false);
  REQUIRE(warnings.texts.size() == 1);
  CHECK_THAT(
      warnings.texts[0],
      Catch::Contains("looptorch: a Trainer was destroyed with an open window: nothing was learnt from "
                      "the last batches given to step(). Call finish_window() or finish() after the loop"));
}

TEST_CASE("own loop: the limit of batches of an earlier fit does not hold in it") {
  toy::Net net = toy::net();
  auto optimizer = sgd(net);
  lt::Trainer trainer(net, optimizer, toy::objective);
  int evaluated = 0;
  const auto counted = [&](toy::Net& model, const toy::Batch& batch) {
    ++evaluated;
    return toy::objective(model, batch);
  };
  trainer.fit(toy::batches(4), {.limit_batches = 2});
  trainer.step(toy::batches(1)[0]);
  (void)trainer.evaluate(toy::batches(5), counted);
  CHECK(evaluated == 5);
}

TEST_CASE("a first step whose begin throws ends the policies that had begun") {
  toy::Net net = toy::net();
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  lt::Trainer trainer(net, optimizer, toy::objective, lt::Freeze{"first.*"},
                      lt::ScheduleLr{.decay = lt::LinearDecay{}}, lt::BackendFlags{.deterministic = true});
  CHECK_THROWS_AS(trainer.step(toy::batches(1)[0]), lt::UsageError);  // the decay has no end
  CHECK(net->first->weight.requires_grad());
  CHECK_FALSE(at::globalContext().deterministicAlgorithms());
}
