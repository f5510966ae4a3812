// SPDX-License-Identifier: MIT
// StopEarly against a count by hand and transformers' EarlyStoppingCallback, recorded by
// tests/parity/schedules.py.
// Tests policies/metrics: metric_reader
#include "support/precompiled.hpp"

#include <looptorch/policies.hpp>
#include <looptorch/policies/stop_early.hpp>
#include <looptorch/trainer.hpp>

#include "support/reference.hpp"
#include "support/temporary_folder.hpp"
#include "support/toy.hpp"

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <utility>
#include <vector>

namespace lt = looptorch;

namespace {

std::vector<double> values_of(const std::string& name) {
  const auto tensor = reference::tensors("schedules").at("metric." + name).contiguous();
  return {tensor.data_ptr<double>(), tensor.data_ptr<double>() + tensor.numel()};
}

/// Publishes the next of `values` at each epoch's end.
auto publishing(const std::vector<double>& values, const std::string& name = "validation.loss") {
  return lt::On{lt::kUpdate, [values, name](lt::EpochContext& epoch) {
                  const auto number = static_cast<std::size_t>(epoch.run.progress().epoch - 1);
                  if (number < values.size()) epoch.run.metrics().publish(name, values[number]);
                }};
}

struct Outcome {
  lt::FitResult result;
  lt::StopEarly::State state;
};

/// Epochs of two batches, one for each of `values`.
Outcome fit(const lt::StopEarly& stop, const std::vector<double>& values) {
  auto net = toy::net();
  torch::optim::SGD sgd(net->parameters(), 0.1);
  lt::Trainer trainer(net, sgd, toy::objective, publishing(values, stop.metric), stop);
  const auto result = trainer.fit(toy::batches(2), {.epochs = static_cast<int64_t>(values.size())});
  return {result, trainer.policy<lt::StopEarly>()};
}

}  // namespace

TEST_CASE("it stops where transformers' EarlyStoppingCallback does, for lower and for higher") {
  for (const int64_t patience : {1, 2, 3, 4}) {
    const auto epochs = [&](const std::string& name) {
      const std::string key = "stop." + name + "." + std::to_string(patience);
      return static_cast<int64_t>(reference::tensors("schedules").at(key).item<double>());
    };
    INFO("patience " << patience);
    const auto lower = fit({.patience = patience}, values_of("falling"));
    CHECK(lower.result.epochs == epochs("falling"));
    const auto higher =
        fit({.metric = "accuracy", .patience = patience, .better = lt::Better::higher}, values_of("rising"));
    CHECK(higher.result.epochs == epochs("rising"));
  }
}

TEST_CASE("the reason names the metric, the best and the patience; the state has the best's step") {
  const auto [result, state] = fit({.patience = 3}, {0.5, 0.123, 0.2, 0.3, 0.2, 0.1});
  CHECK(result.status == lt::FitStatus::stopped);
  CHECK(result.reason == "validation.loss has not improved on 0.123 for 3 evaluations");
  CHECK(result.epochs == 5);
  CHECK(state.best.value() == 0.123);
  CHECK(state.best.step() == 4);
  CHECK(state.waited == 3);
  CHECK(fit({.patience = 1}, {0.5, 0.5}).result.reason ==
        "validation.loss has not improved on 0.5 for 1 evaluation");
}

TEST_CASE("an improvement must exceed min_delta, and small ones do not add up") {
  const std::vector<double> creeping{1.0, 0.95, 0.9, 0.875, 0.5};
  CHECK(fit({.patience = 3, .min_delta = 0.0}, creeping).result.status == lt::FitStatus::completed);
  CHECK(fit({.patience = 3, .min_delta = 0.125}, creeping).result.epochs == 4);
  CHECK(fit({.patience = 4, .min_delta = 0.125}, creeping).result.status == lt::FitStatus::completed);
}

TEST_CASE("NaN never counts as better, and a metric that is nothing else says so") {
  const double nan = std::nan("");
  const auto [result, state] = fit({.patience = 2}, {nan, nan, 1.0});
  CHECK(result.epochs == 2);
  CHECK(result.reason == "validation.loss has had no value to improve on for 2 evaluations");
  CHECK(fit({.patience = 2}, {1.0, nan, 0.5, nan, 0.25}).result.status == lt::FitStatus::completed);
}

TEST_CASE("it counts evaluations in mid-epoch too, and ends the fit after the window") {
  auto net = toy::net();
  torch::optim::SGD sgd(net->parameters(), 0.1);
  const auto measure = [](toy::Net&, const toy::Batch&) { return 1.0; };
  lt::Trainer trainer(net, sgd, toy::objective, lt::StopEarly{.patience = 2},
                      lt::Validate{toy::batches(1), measure, {.every = 3}});
  const auto result = trainer.fit(toy::batches(100));
  CHECK(result.steps == 9);
  CHECK(result.status == lt::FitStatus::stopped);
  CHECK(trainer.policy<lt::StopEarly>().best.step() == 3);
}

TEST_CASE("training up to the stop is the loop by hand") {
  auto ours = toy::net(), theirs = toy::net();
  torch::optim::SGD a(ours->parameters(), 0.1), b(theirs->parameters(), 0.1);
  const auto data = toy::batches(4);
  lt::Trainer trainer(ours, a, toy::objective, lt::StopEarly{.patience = 2}, publishing({3, 2, 2.5, 2, 1}));
  CHECK(trainer.fit(data, {.epochs = 10}).epochs == 4);
  toy::train_by_hand(theirs, b, data, 1, 4);
  CHECK(toy::distance(ours, theirs) < 1e-12);
}

TEST_CASE("of several the first to lose patience stops") {
  auto net = toy::net();
  torch::optim::SGD sgd(net->parameters(), 0.1);
  lt::Trainer trainer(net, sgd, toy::objective, lt::StopEarly{.patience = 4},
                      lt::StopEarly{.metric = "wer", .patience = 2}, publishing({1, 2, 2, 2, 2, 2}),
                      publishing({9, 8, 8, 8, 8}, "wer"));
  const auto result = trainer.fit(toy::batches(1), {.epochs = 6});
  CHECK(result.epochs == 4);
  CHECK(result.reason == "wer has not improved on 8 for 2 evaluations");
}

TEST_CASE("a fit after the stop grants the patience anew; a fit that ended otherwise keeps the count") {
  auto net = toy::net();
  torch::optim::SGD sgd(net->parameters(), 0.1);
  lt::Trainer trainer(net, sgd, toy::objective, lt::StopEarly{.patience = 2},
                      publishing({1, 2, 2, 2, 2, 0.5, 2, 2, 2}));
  CHECK(trainer.fit(toy::batches(1), {.epochs = 2}).status == lt::FitStatus::completed);
  CHECK(trainer.fit(toy::batches(1), {.epochs = 20}).epochs == 3);  // the second in a row
  CHECK(trainer.fit(toy::batches(1), {.epochs = 20}).epochs == 5);  // two more
  CHECK(trainer.fit(toy::batches(1), {.epochs = 20}).epochs == 8);  // one that is better, then two
  CHECK(trainer.policy<lt::StopEarly>().best.value() == 0.5);
}

TEST_CASE("what is published between two fits counts") {
  auto net = toy::net();
  torch::optim::SGD sgd(net->parameters(), 0.1);
  lt::Trainer trainer(net, sgd, toy::objective, lt::StopEarly{.patience = 2});
  for (const double value : {1.0, 2.0}) {
    trainer.fit(toy::batches(1));
    trainer.metrics().publish("validation.loss", value);
  }
  trainer.fit(toy::batches(1));
  trainer.metrics().publish("validation.loss", 3.0);
  const auto result = trainer.fit(toy::batches(1));
  CHECK(result.status == lt::FitStatus::stopped);
  CHECK(result.steps == 3);
}

TEST_CASE("a value that is published after it counts one window later, in a run that is resumed too") {
  const std::vector<double> values{5, 4, 6, 3, 6, 6, 6, 6, 6, 6};
  using State = lt::StopEarly::State;
  const auto train = [&](const std::filesystem::path& folder, std::vector<std::int64_t> ends) {
    State state;
    for (std::size_t part = 0; part <= ends.size(); ++part) {
      auto net = toy::net();
      torch::optim::SGD sgd(net->parameters(), 0.1);
      const lt::On late{lt::kObserve, [&](lt::WindowContext& window) {
                          const auto step = static_cast<std::size_t>(window.run.progress().step);
                          window.run.metrics().publish("score", values[step - 1]);
                        }};
      lt::Trainer trainer(net, sgd, toy::objective, late, lt::StopEarly{.metric = "score", .patience = 4},
                          lt::SnapshotEvery{.folder = folder, .steps = 1, .keep = 100});
      lt::FitOptions options{.epochs = 1, .resume = part == 0 ? std::filesystem::path() : folder};
      if (part < ends.size()) options.max_steps = ends[part];
      const auto result = trainer.fit(toy::batches(10), options);
      if (part == ends.size()) CHECK(result.steps == 9);  // the fourth 6 after the 3 is that of step 8
      state = trainer.policy<lt::StopEarly>();
    }
    return state;
  };
  const looptorch::testing::TemporaryFolder folder;
  const State whole = train(folder / "whole", {});
  CHECK((whole.best.step() == 5 && whole.best.value() == 3.0));
  for (std::int64_t end = 1; end <= 9; ++end) {  // the last has stopped
    INFO("resumed from step " << end);
    const State resumed = train(folder / std::to_string(end), {end});
    CHECK((resumed.best.step() == whole.best.step() && resumed.waited == whole.waited));
  }
}

TEST_CASE("a value that is published after it in a fit's last window counts in the next fit's first one") {
  const auto step_of_best = [](const std::vector<std::int64_t>& ends) {
    auto net = toy::net();
    torch::optim::SGD sgd(net->parameters(), 0.1);
    const lt::On late{lt::kObserve, [](lt::WindowContext& window) {
                        window.run.metrics().publish("score", -window.run.progress().step);
                      }};
    lt::Trainer trainer(net, sgd, toy::objective, late, lt::StopEarly{.metric = "score"});
    for (const std::int64_t end : ends) trainer.fit(toy::batches(4), {.max_steps = end});
    return trainer.policy<lt::StopEarly>().best.step();
  };
  CHECK(step_of_best({2}) == 2);
  CHECK(step_of_best({1, 2}) == 2);
}

TEST_CASE("a run that is resumed within an epoch counts no value twice") {
  const auto train = [](const lt::SnapshotContents* from, std::int64_t max_steps) {
    auto net = toy::net();
    torch::optim::SGD sgd(net->parameters(), 0.1);
    lt::Trainer trainer(net, sgd, toy::objective, publishing({1, 2, 0.5, 2}), lt::StopEarly{.patience = 2});
    if (from) trainer.restore(*from);
    const auto result = trainer.fit(toy::batches(2), {.epochs = 4, .max_steps = max_steps});
    CHECK(result.steps == max_steps);
    CHECK(result.status != lt::FitStatus::stopped);
    return std::pair(trainer.snapshot(), trainer.policy<lt::StopEarly>());
  };
  for (std::int64_t cut = 1; cut < 8; ++cut) {
    INFO("resumed from step " << cut);
    const auto before = train(nullptr, cut).first;
    const auto state = train(&before, 8).second;
    CHECK((state.waited == 1 && state.best.step() == 6 && state.best.value() == 0.5));
  }
}

TEST_CASE("its state continues where it was saved, on a board that was saved too or on a new one") {
  const lt::StopEarly stop{.patience = 3};
  const std::vector<double> values{5, 4, 6, 3, std::nan(""), 4};
  auto net = toy::net();
  torch::optim::SGD sgd(net->parameters(), 0.1);
  const std::vector<lt::UpdateView> views{{.name = "update", .optimizer = &sgd, .parameters = {}}};
  const auto publish = [&](lt::Run& run, lt::StopEarly::State& state, double value) {
    run.metrics().publish(stop.metric, value);
    lt::EpochContext epoch{run};
    stop.on_epoch_end(epoch, state);
  };
  for (const bool same_board : {true, false}) {
    lt::Run first(*net, views), second(*net, views);
    lt::StopEarly::State before, after;
    for (const double value : values) publish(first, before, value);
    lt::StateDict saved;
    stop.state_dict(saved, before);
    stop.load_state_dict(saved, after);
    CHECK(after.waited == 2);
    CHECK(after.best.value() == 3.0);
    lt::Run& run = same_board ? first : second;
    lt::FitContext begin{run};
    stop.on_fit_begin(begin, after);
    CHECK_FALSE(run.stop_reason());
    publish(run, after, 3.5);
    CHECK(run.stop_reason().value_or("") == "validation.loss has not improved on 3 for 3 evaluations");
  }
}

TEST_CASE("the state of one of several is not taken for that of another") {
  const lt::StopEarly loss, wer{.metric = "wer"};
  lt::StopEarly::State state;
  lt::StateDict saved;
  wer.state_dict(saved, state);
  CHECK_THROWS_WITH(loss.load_state_dict(saved, state),
                    Catch::Contains("a StopEarly for 'wer', not of a StopEarly for 'validation.loss'"));
  wer.load_state_dict(saved, state);
}

TEST_CASE("a metric that is not published is an error in the second epoch; so are options out of range") {
  auto net = toy::net();
  torch::optim::SGD sgd(net->parameters(), 0.1);
  lt::Trainer silent(net, sgd, toy::objective, lt::StopEarly{.metric = "validation.wer"}, publishing({1, 1}));
  CHECK_THROWS_WITH(silent.fit(toy::batches(1), {.epochs = 2}),
                    Catch::Contains("StopEarly waits for the metric 'validation.wer'") &&
                        Catch::Contains("validation.loss"));
  lt::Trainer waiting(net, sgd, toy::objective, lt::StopEarly{});
  waiting.fit(toy::batches(1));
  CHECK_THROWS_WITH(waiting.fit(toy::batches(1)), Catch::Contains("StopEarly waits for the metric"));
  CHECK_THROWS_WITH(fit({.metric = ""}, {1}), Catch::Contains("name of a metric"));
  CHECK_THROWS_WITH(fit({.patience = 0}, {1}), Catch::Contains("patience must be at least 1, got 0"));
  CHECK_THROWS_WITH(fit({.min_delta = -0.5}, {1}), Catch::Contains("-0.5"));
  CHECK_THROWS_AS(fit({.min_delta = std::nan("")}, {1}), lt::UsageError);
}
