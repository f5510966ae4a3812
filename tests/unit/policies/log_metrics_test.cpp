// SPDX-License-Identifier: MIT
// What LogMetrics writes of runs whose losses are known, and how a resumed run goes on.
//
// Tests objective: metric_sink
// Tests policies: log_metrics
// Tests policies/watching: feed_target, known_sounds, machine_numbers, metric_feed, metric_rows
//
// Tests policies/watching: step_clock, tracked_means
#include "support/precompiled.hpp"

#include <looptorch/base/device/device_use.hpp>
#include <looptorch/policies.hpp>
#include <looptorch/policies/log_metrics.hpp>
#include <looptorch/trainer.hpp>

#include "support/temporary_folder.hpp"
#include "support/toy.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace lt = looptorch;
namespace report = looptorch::report;
using lt::testing::TemporaryFolder;

namespace log_metrics {

/// The rows of a folder's metrics.jsonl, by metric, then step.
std::map<std::string, std::map<std::int64_t, double>> curves(const std::filesystem::path& folder) {
  std::map<std::string, std::map<std::int64_t, double>> curves;
  report::MetricNames names;
  std::ifstream file(folder / "metrics.jsonl");
  for (std::string line; std::getline(file, line);) {
    const auto row = report::read_json_line(line, names);
    REQUIRE(row);
    for (const auto& [id, value] : row->values) {
      INFO(names[id] << " at " << row->step);
      CHECK(curves[names[id]].emplace(row->step, value).second);
    }
  }
  return curves;
}

/// Calls a function at a window's end, after its snapshot.
struct BehindSnapshots {
  std::function<void(lt::WindowContext&)> call;
  static constexpr lt::Phase phase = lt::Phase::finish;
  void on_window_end(lt::WindowContext& window) const { call(window); }
};

struct ToyRun {
  toy::Net net = toy::net();
  lt::FusedAdamW adam{net->parameters(), {.lr = 0.01}};
};

}  // namespace log_metrics

using log_metrics::curves, log_metrics::ToyRun;

TEST_CASE("LogMetrics: the losses of windows, as a loop by hand has them") {
  const TemporaryFolder folder;
  const auto batches = toy::batches(10);
  ToyRun run;
  lt::Trainer trainer(run.net, run.adam, toy::objective, lt::Accumulate<2>{}, lt::ClipGradNorm{100.0},
                      lt::LogMetrics{.folder = folder.path()});
  trainer.fit(batches, {.epochs = 2});

  ToyRun other;
  const auto losses = toy::train_by_hand(other.net, other.adam, batches, 2, 2);
  const auto found = curves(folder.path());
  REQUIRE(found.at("loss").size() == 10);
  for (std::size_t i = 0; i < losses.size(); ++i)
    CHECK(found.at("loss").at(std::int64_t(i) + 1) == Approx(losses[i]).epsilon(1e-12));
  CHECK(found.at("lr").at(10) == 0.01);
  CHECK(found.at("gradient_norm").size() == 10);
  CHECK(found.at("skipped").at(10) == 0);
  CHECK(found.at("samples_per_second").size() == 10);
  CHECK(found.at("resident_bytes").at(10) > 1e6);
  double seconds = 0;
  for (const char* phase : {"time/forward", "time/backward", "time/update"})
    for (const auto& [step, value] : found.at(phase)) {
      CHECK(value > 0);
      seconds += value;
    }
  CHECK(seconds > 0);
}

TEST_CASE(
    "LogMetrics: examples that are offered reach the page and TensorBoard, the last of a name on the page") {
  const TemporaryFolder folder;
  ToyRun run;
  const lt::On offer{
      lt::kObserve, [](lt::WindowContext& window) {
        const auto step = std::to_string(window.run.progress().step);
        window.run.offer_examples("transcripts", {lt::TextExample{"step " + step, {{"left", "right"}}}});
        window.run.offer_examples(
            "tone", {lt::SoundExample{"a", 8000, {0.5f}}, lt::DistributionExample{"b", {1, 2}}});
      }};
  lt::Trainer without(run.net, run.adam, toy::objective, offer);
  without.fit(toy::batches(1));  // goes nowhere
  lt::Trainer trainer(run.net, run.adam, toy::objective, offer, lt::LogMetrics{.folder = folder.path()});
  trainer.fit(toy::batches(3));
  const std::string page = lt::read_file(folder / "report.html");
  CHECK_THAT(page, Catch::Contains("step 3") && Catch::Contains(R"([["left","right"]])") &&
                       Catch::Contains("data:audio/wav;base64,") && !Catch::Contains("\"step 2\""));
  const auto files = looptorch::report::detail::event_files(folder.path());
  REQUIRE(files.size() == 1);
  const std::string events = lt::read_file(files[0]);
  const auto count = [&events](const std::string& text) {
    std::int64_t count = 0;
    for (auto at = events.find(text); at != events.npos; at = events.find(text, at + 1)) ++count;
    return count;
  };
  CHECK(count("*step 2*: **left → right**") == 1);
  CHECK(count("tone/b") == 3);
  CHECK(count("tone/0") == 1);  // the same sound each time
}

namespace {

/// The curves of losses, norms and an objective's own metric: all but times and speeds.
auto numbers_of(const std::filesystem::path& folder) {
  auto all = curves(folder);
  std::erase_if(all, [](const auto& curve) {
    return curve.first != "loss" && curve.first != "gradient_norm" && curve.first != "seven";
  });
  return all;
}

lt::Loss with_seven(toy::Net& net, const toy::Batch& batch) {
  lt::Loss loss = toy::objective(net, batch);
  loss.metrics = {{"seven", loss.value.detach() * 0 + 7}};
  return loss;
}

}  // namespace

TEST_CASE("LogMetrics: a second fit, and one after a loop of step, write what one fit writes") {
  const auto batches = toy::batches(4);
  const auto rows_of = [&](const auto& train) {
    const TemporaryFolder folder;
    ToyRun run;
    lt::Trainer trainer(run.net, run.adam, with_seven, lt::ClipGradNorm{100.0},
                        lt::LogMetrics{.folder = folder.path()});
    train(trainer);
    return numbers_of(folder.path());
  };
  const auto expected = rows_of([&](auto& trainer) { trainer.fit(batches, {.epochs = 2}); });
  REQUIRE(expected.at("seven").size() == 8);
  CHECK(rows_of([&](auto& trainer) {
          trainer.fit(batches);
          trainer.fit(batches, {.epochs = 2});
        }) == expected);
  CHECK(rows_of([&](auto& trainer) {
          for (const auto& batch : batches) trainer.step(batch);
          trainer.fit(batches);
        }) == expected);
}

TEST_CASE("LogMetrics: a Trainer's further fits continue its files, and read them only if they must") {
  const auto batches = toy::batches(2);
  const TemporaryFolder folder;
  ToyRun run;
  lt::Trainer trainer(run.net, run.adam, with_seven, lt::SnapshotEvery{.folder = folder / "snapshots"},
                      lt::LogMetrics{.folder = folder.path()});
  const auto event_files = [&] { return report::detail::event_files(folder.path()).size(); };
  const auto rows = [&] { return curves(folder.path()).at("loss").size(); };
  for (int i = 0; i < 3; ++i) trainer.fit(batches);
  CHECK(event_files() == 1);
  CHECK(rows() == 6);
  const auto half = trainer.snapshot();
  trainer.fit(batches);
  CHECK(event_files() == 1);

  lt::remove_snapshot(folder / "snapshots" / "step-00000008");
  trainer.restore(half);  // the log drops the steps that are made again
  trainer.fit(batches, {.max_steps = 7});
  CHECK(rows() == 7);
  CHECK(event_files() == 2);

  std::filesystem::remove(folder / "metrics.csv");  // by someone else
  trainer.fit(batches, {.max_steps = 8});
  CHECK(rows() == 8);
  CHECK(std::filesystem::exists(folder / "metrics.csv"));
  const std::string page = lt::read_file(folder / "report.html");
  CHECK_THAT(page, Catch::Contains("max_steps, step 8"));
}

TEST_CASE("LogMetrics: a Trainer that moves within a loop of step keeps writing") {
  const auto batches = toy::batches(4);
  const auto rows_of = [&](bool moves) {
    const TemporaryFolder folder;
    ToyRun run;
    const auto begin = [&] {
      lt::Trainer trainer(run.net, run.adam, with_seven, lt::ClipGradNorm{100.0},
                          lt::WatchMemory{.out = nullptr}, lt::LogMetrics{.folder = folder.path()});
      trainer.step(batches[0]);
      return std::make_unique<decltype(trainer)>(std::move(trainer));
    };
    auto trainer = begin();
    for (std::size_t i = 1; i < batches.size(); ++i) {
      if (moves) trainer = std::make_unique<typename decltype(trainer)::element_type>(std::move(*trainer));
      trainer->step(batches[i]);
    }
    trainer->finish();
    return numbers_of(folder.path());
  };
  CHECK(rows_of(true) == rows_of(false));
  CHECK(rows_of(true).at("loss").size() == 4);
}

TEST_CASE("LogMetrics: histograms of each parameter at an epoch's end") {
  const TemporaryFolder folder;
  ToyRun run;
  lt::Trainer trainer(run.net, run.adam, toy::objective,
                      lt::LogMetrics{.folder = folder.path(), .histograms = true});
  trainer.fit(toy::batches(3), {.epochs = 2});
  const std::string page = lt::read_file(folder / "report.html");
  CHECK_THAT(page, Catch::Contains(R"("kind":"distribution","title":"first.weight")") &&
                       Catch::Contains(R"("name":"parameters","step":6)"));
  const std::string events = lt::read_file(report::detail::event_files(folder.path()).at(0));
  CHECK(events.find("parameters/second.bias") != events.npos);

  // What is shown are the parameters' values, of large ones 4,096 at most; of others than numbers nothing.
  const auto shown = lt::detail::parameter_distributions(*run.net);
  REQUIRE(shown.size() == 4);
  const auto& bias = std::get<lt::DistributionExample>(shown[1]);
  CHECK(bias.title == "first.bias");
  REQUIRE(bias.values.size() == 8);
  CHECK(bias.values[7] == Approx(run.net->first->bias[7].item<double>()).epsilon(1e-6));
  torch::nn::Linear large(10000, 3);
  large->register_parameter("codes", torch::ones(4, torch::kLong), /*requires_grad=*/false);
  const auto of_large = lt::detail::parameter_distributions(*large);
  REQUIRE(of_large.size() == 2);
  const auto& some = std::get<lt::DistributionExample>(of_large[0]).values;
  CHECK((some.size() > 3000 && some.size() <= 4096));
  CHECK(some.back() == Approx(large->weight.flatten()[8 * std::int64_t(some.size() - 1)].item<double>()));
}

TEST_CASE("LogMetrics: metrics of objectives, offers, published ones, and rows every K steps") {
  const TemporaryFolder folder;
  ToyRun run;
  const auto batches = toy::batches(6);
  const auto objective = [](toy::Net& net, const toy::Batch& batch) {
    lt::Loss loss = toy::objective(net, batch);
    loss.metrics = {{"size", batch.labels.size(0)}};
    return loss;
  };
  lt::Trainer trainer(run.net, run.adam, objective, lt::Validate(batches),
                      lt::On{lt::kClip,
                             [](lt::UpdateContext& update) {
                               update.run.offer("half", 0.5);
                               update.run.offer("step", torch::tensor(2.0));
                               update.run.offer("hole", std::nan(""));
                             }},
                      lt::LogMetrics{.folder = folder.path(), .every = 3});
  const auto result = trainer.fit(batches, {.epochs = 2});
  const auto found = curves(folder.path());
  CHECK(found.at("loss").size() == 4);
  CHECK(found.at("size").at(3) == double(batches[2].labels.size(0)));
  CHECK(found.at("half").at(12) == 0.5);
  CHECK(found.at("metric.step").at(12) == 2.0);
  CHECK(std::isnan(found.at("hole").at(6)));
  CHECK(found.at("validation.loss").size() == 2);
  CHECK(found.at("validation.loss").at(12) == trainer.metrics().find("validation.loss"));
}

TEST_CASE("LogMetrics: each validation has its own step, also between two rows") {
  const TemporaryFolder folder;
  ToyRun run;
  lt::Trainer trainer(run.net, run.adam, toy::objective, lt::Validate{toy::batches(1), {.every = 3}},
                      lt::LogMetrics{.folder = folder.path(), .every = 5});
  std::map<std::int64_t, double> losses;
  for (std::int64_t step = 3; step <= 9; step += 3) {
    trainer.fit(toy::batches(10), {.max_steps = step + 1});
    losses[step] = *trainer.metrics().find("validation.loss");
  }
  const auto found = curves(folder.path());
  CHECK(found.at("validation.loss") == losses);
  CHECK(found.at("loss").size() == 2);
}

TEST_CASE("LogMetrics: a validation before a hook that throws at the window's end has that window's step") {
  const TemporaryFolder folder;
  ToyRun run;
  const auto fail = [](lt::WindowContext& window) {
    if (window.run.progress().step == 4) throw std::runtime_error("full");
  };
  lt::Trainer trainer(run.net, run.adam, toy::objective, lt::Validate{toy::batches(1), {.every = 2}},
                      lt::On{lt::kSchedule, fail}, lt::LogMetrics{.folder = folder.path()});
  CHECK_THROWS_WITH(trainer.fit(toy::batches(6)), "full");
  const auto found = curves(folder.path());
  CHECK((found.at("validation.loss").size() == 2 && found.at("validation.loss").count(4) == 1));
  CHECK((found.at("lr").size() == 4 && found.at("lr").count(4) == 1));
}

TEST_CASE("LogMetrics: several updates have names of their own") {
  const TemporaryFolder folder;
  toy::Net net = toy::net();
  lt::FusedAdamW first(net->first->parameters(), {.lr = 0.01}),
      second(net->second->parameters(), {.lr = 0.02});
  lt::Trainer trainer(net, lt::Update(first, toy::objective, {.name = "lower"}),
                      lt::Update(second, toy::objective, {.name = "upper", .every = 2}),
                      lt::LogMetrics{.folder = folder.path()});
  trainer.fit(toy::batches(4));
  const auto found = curves(folder.path());
  CHECK(found.at("lower/loss").size() == 4);
  CHECK(found.at("upper/loss").size() == 2);
  CHECK(found.at("upper/lr").at(3) == 0.02);
}

TEST_CASE("LogMetrics: a resumed run continues in the same curves") {
  const TemporaryFolder whole, parts;
  const auto batches = toy::batches(8);
  const auto train = [&](const TemporaryFolder& folder, lt::FitOptions options) {
    ToyRun run;
    lt::Trainer trainer(run.net, run.adam, toy::objective, lt::Validate(batches),
                        lt::SnapshotEvery{.folder = folder / "snapshots", .steps = 3},
                        lt::LogMetrics{.folder = folder.path()});
    trainer.fit(batches, options);
  };
  train(whole, {.epochs = 3});
  train(parts, {.epochs = 3, .max_steps = 14});
  {  // what a killed process may leave
    std::ofstream(parts / "metrics.jsonl", std::ios::app)
        << "{\"step\":15,\"epoch\":1,\"seconds\":9.0,\"loss\":7.0}\n{\"st";
  }
  train(parts, {.epochs = 3, .resume = parts / "snapshots"});
  const auto a = curves(whole.path()), b = curves(parts.path());
  CHECK(a.at("loss") == b.at("loss"));
  CHECK(a.at("loss").size() == 24);
  CHECK(a.at("validation.loss") == b.at("validation.loss"));
  std::ifstream file(parts / "metrics.csv");
  std::int64_t lines = 0;
  for (std::string line; std::getline(file, line);) ++lines;
  CHECK(lines >= 25);
}

TEST_CASE("LogMetrics: a resumed run's page has the examples of the processes before, up to its snapshot") {
  const TemporaryFolder folder;
  const auto train = [&](lt::FitOptions options, const char* name) {
    ToyRun run;
    const lt::On offer{
        lt::kObserve, [name](lt::WindowContext& window) {
          const auto step = window.run.progress().step;
          const std::string title = "</script>" + std::to_string(step);
          if (step == 2 || step == 4)
            window.run.offer_examples(step == 2 ? "early" : name, {lt::TextExample{title, {{"a", "b"}}}});
        }};
    lt::Trainer trainer(run.net, run.adam, toy::objective, offer,
                        lt::SnapshotEvery{.folder = folder / "snapshots", .steps = 3},
                        lt::LogMetrics{.folder = folder.path()});
    trainer.fit(toy::batches(8), options);
  };
  const auto names = [&] {
    std::map<std::string, std::string> names;
    const lt::Json page = report::data_of_page(lt::read_file(folder / "report.html"));
    for (const lt::Json& example : page.at("examples").as_array())
      names[example.at("name").as_string()] = example.at("shown").as_array().at(0).at("title").as_string();
    return names;
  };
  using Names = std::map<std::string, std::string>;
  train({.max_steps = 5}, "late");
  CHECK(names() == Names{{"early", "</script>2"}, {"late", "</script>4"}});
  std::filesystem::rename(folder / "snapshots" / "step-00000005", folder / "away");
  train({.max_steps = 3, .resume = folder / "snapshots"}, "unused");
  CHECK(names() == Names{{"early", "</script>2"}});
  std::ofstream(folder / "report.html") << "<html>";
  train({.max_steps = 5, .resume = folder / "snapshots"}, "other");
  CHECK(names() == Names{{"other", "</script>4"}});
  std::filesystem::rename(folder / "snapshots", folder / "old");
  train({.max_steps = 1}, "unused");  // another run: it shows nothing of this one
  CHECK(names().empty());
}

namespace log_metrics {

/// Trains with snapshots, and some milliseconds of sleep a step.
void train_with_snapshots(const std::filesystem::path& folder, lt::FitOptions options, int milliseconds) {
  ToyRun run;
  lt::Trainer trainer(run.net, run.adam, toy::objective,
                      lt::SnapshotEvery{.folder = folder / "snapshots", .steps = 7},
                      lt::LogMetrics{.folder = folder, .flush_seconds = 0.02},
                      lt::On{lt::kObserve, [&](lt::WindowContext&) {
                               std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
                             }});
  trainer.fit(toy::batches(8), options);
}

}  // namespace log_metrics

TEST_CASE("for the next case: a process that trains until it is killed", "[.trains_on]") {
  if (const char* folder = std::getenv("LOOPTORCH_TRAINS_ON"))
    log_metrics::train_with_snapshots(folder, {.epochs = 1000000}, 20);
}

TEST_CASE("LogMetrics: a killed run loses only what was not yet written, and continues from its snapshot") {
  const TemporaryFolder folder;
  const auto text = [&] {
    const auto file = folder / "metrics.jsonl";
    return std::filesystem::exists(file) ? lt::read_file(file) : std::string();
  };
  // A process of its own program: autograd's threads do not survive a fork.
  const pid_t child = ::fork();
  if (child == 0) {
    ::setenv("LOOPTORCH_TRAINS_ON", folder.path().c_str(), 1);
    ::execl("/proc/self/exe", "tests", "[.trains_on]", static_cast<char*>(nullptr));
    ::_exit(127);
  }
  std::string before;
  const auto has_begun = [&] {  // the first snapshot may be complete long after the row of step 10
    return before.find("{\"step\":10,") != before.npos && !lt::list_snapshots(folder / "snapshots").empty();
  };
  for (int i = 0; i < 12000 && !has_begun(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    before = text();
  }
  ::kill(child, SIGKILL);
  int status = 0;
  ::waitpid(child, &status, 0);
  REQUIRE((WIFSIGNALED(status) && before.find("{\"step\":10,") != before.npos));
  CHECK(text().starts_with(before));                                              // what was written stays
  std::ofstream(folder / "metrics.jsonl", std::ios::app) << "{\"step\":99,\"ep";  // as a kill in a write may
  log_metrics::train_with_snapshots(folder.path(),
                                    {.epochs = 1000, .max_steps = 300, .resume = folder / "snapshots"}, 0);
  const auto found = curves(folder.path()).at("loss");
  REQUIRE(found.size() == 300);  // each step once, says `curves`
  CHECK((found.begin()->first == 1 && found.rbegin()->first == 300));

  const TemporaryFolder other;
  log_metrics::train_with_snapshots(other.path(), {.epochs = 1000, .max_steps = 300}, 0);
  CHECK(found == curves(other.path()).at("loss"));
}

TEST_CASE("LogMetrics: the page says of all time where it went") {
  const TemporaryFolder folder;
  struct Slow {
    std::int64_t size() const { return 24; }
    at::Tensor get(std::int64_t index) const {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      return torch::full({4}, 0.01 * double(index), torch::kDouble);
    }
  };
  ToyRun run;
  const auto objective = [](toy::Net& net, const at::Tensor& batch) { return net(batch).pow(2).mean(); };
  const auto begin = std::chrono::steady_clock::now();
  {
    lt::Trainer trainer(run.net, run.adam, objective,
                        lt::Validate{std::vector<at::Tensor>(3, torch::ones({2, 4}, torch::kDouble))},
                        lt::SnapshotEvery{.folder = folder / "snapshots", .steps = 2},
                        lt::LogMetrics{.folder = folder.path(), .flush_seconds = 0});
    trainer.fit(lt::PinnedPrefetchLoader(Slow{}, {.batch_size = 4, .workers = 1}), {.epochs = 2});
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const std::string page = lt::read_file(folder / "report.html");
  const auto at = page.find("id=\"run\">") + 9;
  const lt::Json json = lt::Json::parse(page.substr(at, page.find("</script>", at) - at));
  std::map<std::string, double> time;
  double sum = 0;
  for (const lt::Json& phase : json.at("time").as_array()) {
    time[phase.at(0).as_string()] = phase.at(1).as_number();
    sum += phase.at(1).as_number();
  }
  for (const char* phase : {"forward", "backward", "update", "data", "evaluation", "snapshot"}) {
    INFO(phase);
    CHECK(time[phase] > 0);
  }
  // No more than the fit took, and no less than up to its last row, after which a snapshot may still follow.
  std::ifstream file(folder / "metrics.jsonl");
  double last = 0;
  report::MetricNames names;
  for (std::string line; std::getline(file, line);) last = report::read_json_line(line, names)->seconds;
  CHECK(sum <= seconds);
  CHECK(sum >= 0.95 * last);
}

TEST_CASE("LogMetrics: waiting for data takes nothing from the forward pass, nor waits before the fit") {
  const TemporaryFolder folder;
  static std::chrono::milliseconds per_sample;  // a loader copies its dataset
  struct Slow {
    std::int64_t size() const { return 12; }
    at::Tensor get(std::int64_t) const {
      std::this_thread::sleep_for(per_sample);
      return torch::ones({4}, torch::kDouble);
    }
  };
  const auto objective = [](toy::Net& net, const at::Tensor& batch) {
    std::this_thread::sleep_for(std::chrono::milliseconds(4));
    return net(batch).pow(2).mean();
  };
  const auto seconds_of_fit = [&](int before, int within) {
    ToyRun run;
    lt::Trainer trainer(run.net, run.adam, objective,
                        lt::LogMetrics{.folder = folder.path(), .flush_seconds = 0, .page = false});
    lt::PinnedPrefetchLoader loader(Slow{}, {.batch_size = 2, .workers = 0});
    per_sample = std::chrono::milliseconds(before);
    for (const at::Tensor& batch : loader) CHECK(batch.size(0) == 2);
    per_sample = std::chrono::milliseconds(within);
    trainer.fit(loader);
    std::map<std::string, double> sums;
    for (const auto& [name, values] : curves(folder.path()))
      for (const auto& [step, value] : values) {
        INFO(name << " at " << step);
        CHECK((!name.starts_with("time/") || value >= 0));
        sums[name] += value;
      }
    return sums;
  };
  auto quick = seconds_of_fit(30, 0);
  CHECK(quick["time/forward"] >= 6 * 0.004);
  CHECK(quick["time/data"] < 0.18);  // 0.36 s were waited before
  auto slow = seconds_of_fit(0, 5);
  CHECK(slow["time/forward"] >= 6 * 0.004);
  CHECK(slow["time/data"] >= 12 * 0.005);
}

TEST_CASE("LogMetrics: FLOPs beside samples, and their share of the peak where that is known") {
  const TemporaryFolder known, unknown, off;
  const auto train = [](lt::LogMetrics log) {
    torch::nn::Linear net(4, 3);
    lt::FusedAdamW adam(net->parameters(), {.lr = 0.01});
    const auto objective = [](torch::nn::Linear& linear, const at::Tensor& x_B4) {
      return linear(x_B4).pow(2).mean();
    };
    lt::Trainer trainer(net, adam, objective, lt::Validate{std::vector<at::Tensor>(2, at::ones({9, 4}))},
                        std::move(log));
    trainer.fit(std::vector<at::Tensor>(6, at::ones({2, 4})));
  };
  train({.folder = known.path(), .peak = lt::DevicePeak{.fp32 = 1e-3}});
  train({.folder = unknown.path()});
  train({.folder = off.path(), .flops = false, .peak = lt::DevicePeak{.fp32 = 1}});
  const auto found = curves(known.path());
  // Forward, and backward for the weight: 2 x 4 x 3 each.
  for (const auto& [step, rate] : found.at("flops_per_second")) {
    CHECK(rate == Approx(48 * found.at("samples_per_second").at(step)));
    CHECK(found.at("mfu").at(step) == Approx(rate / 1e9));
  }
  CHECK(found.at("flops_per_second").begin()->first == 2);
  CHECK(found.at("mfu").size() == 5);
  CHECK_THAT(lt::read_file(known / "metrics.csv"), Catch::Contains(",mfu"));
  CHECK_THAT(lt::read_file(known / "report.html"), Catch::Contains("\"name\":\"mfu\""));
  CHECK(curves(unknown.path()).contains("flops_per_second"));
  CHECK(!curves(unknown.path()).contains("mfu"));
  CHECK(!curves(off.path()).contains("flops_per_second"));
}

TEST_CASE("LogMetrics: the share of time in which a device had work, where a driver tells it") {
  auto& maker = lt::detail::device_use_maker(at::kCPU);
  maker = [](c10::Device) { return lt::detail::DeviceUseReader([] { return std::optional(0.25); }); };
  const TemporaryFolder folder;
  ToyRun run;
  lt::Trainer trainer(
      run.net, run.adam, toy::objective, lt::LogMetrics{.folder = folder.path(), .flush_seconds = 0},
      lt::On{lt::kObserve,
             [](lt::WindowContext&) { std::this_thread::sleep_for(std::chrono::milliseconds(20)); }});
  trainer.fit(toy::batches(5));
  maker = nullptr;
  const auto found = curves(folder.path()).at("device_busy");
  REQUIRE(found.size() == 1);  // the driver is asked once a second
  CHECK((found.begin()->first > 1 && found.begin()->second == 0.25));
}

TEST_CASE("LogMetrics: a NaN loss is written as one") {
  const TemporaryFolder folder;
  ToyRun run;
  auto batches = toy::batches(3);
  batches[1].features.fill_(std::nan(""));
  lt::Trainer trainer(run.net, run.adam, toy::objective, lt::LogMetrics{.folder = folder.path()});
  CHECK_THROWS_AS(trainer.fit(batches), lt::NonFiniteLoss);
  CHECK(std::isnan(curves(folder.path()).at("loss").at(2)));
}

TEST_CASE("LogMetrics: training is the same with and without it, bit for bit") {
  const TemporaryFolder folder;
  const auto batches = toy::batches(5);
  ToyRun with, without;
  lt::Trainer logged(with.net, with.adam, toy::objective, lt::ClipGradNorm{1.0},
                     lt::LogMetrics{.folder = folder.path()});
  lt::Trainer plain(without.net, without.adam, toy::objective, lt::ClipGradNorm{1.0});
  logged.fit(batches, {.epochs = 2}), plain.fit(batches, {.epochs = 2});
  CHECK(toy::distance(with.net, without.net) == 0);
}

TEST_CASE("LogMetrics: a page has the run's curves, facts and end") {
  const TemporaryFolder folder;
  ToyRun run;
  const auto batches = toy::batches(5);
  lt::Trainer trainer(
      run.net, run.adam, toy::objective, lt::Validate(batches),
      lt::LogMetrics{.folder = folder.path(), .title = "A <toy>", .facts = {{"--lr", "0.01"}}});
  trainer.fit(batches, {.epochs = 2});
  const std::string page = lt::read_file(folder / "report.html");
  for (const char* part :
       {"<h1>A &lt;toy></h1>", "completed, step 10", "[\"--lr\",\"0.01\"]",
        "\"name\":\"validation.loss\",\"points\":[[5,", "\"head\":[\"epoch\",\"step\",\"time\""})
    CHECK_THAT(page, Catch::Contains(part));
  lt::Trainer without(
      run.net, run.adam, toy::objective,
      lt::LogMetrics{.folder = folder / "other", .csv = false, .tensorboard = false, .page = false});
  without.fit(batches);
  CHECK(std::distance(std::filesystem::directory_iterator(folder / "other"), {}) == 1);
}

TEST_CASE("LogMetrics: options and folders that cannot be") {
  const TemporaryFolder folder;
  std::ofstream(folder / "file") << "x";
  ToyRun run;
  lt::Trainer never(run.net, run.adam, toy::objective, lt::LogMetrics{.folder = folder.path(), .every = 0});
  CHECK_THROWS_WITH(never.fit(toy::batches(1)), "LogMetrics needs an `every` of at least 1, got 0");
  lt::Trainer nowhere(run.net, run.adam, toy::objective, lt::LogMetrics{.folder = folder / "file" / "x"});
  CHECK_THROWS_AS(nowhere.fit(toy::batches(1)), lt::FileError);
}

TEST_CASE("LogMetrics: a fit that another policy refuses leaves the files of the earlier run alone") {
  const TemporaryFolder folder;
  const auto batches = toy::batches(4);
  const auto train = [&] {
    ToyRun run;
    lt::Trainer trainer(run.net, run.adam, toy::objective,
                        lt::SnapshotEvery{.folder = folder / "snapshots", .steps = 2},
                        lt::LogMetrics{.folder = folder.path()});
    trainer.fit(batches);
  };
  train();
  const auto before = curves(folder.path());
  CHECK(before.at("loss").size() == 4);
  CHECK_THROWS_AS(train(), lt::UsageError);  // the folder holds a run
  CHECK(curves(folder.path()) == before);
}

TEST_CASE("LogMetrics: the rows up to a snapshot are in the files when its state is saved") {
  const TemporaryFolder folder;
  ToyRun run;
  lt::Trainer trainer(run.net, run.adam, toy::objective,
                      lt::SnapshotEvery{.folder = folder / "snapshots", .steps = 5},
                      lt::LogMetrics{.folder = folder.path(), .flush_seconds = 1e9},
                      log_metrics::BehindSnapshots{[&](lt::WindowContext& window) {
                        const std::int64_t step = window.run.progress().step;
                        if (step % 5 != 0 || step == 40) return;  // that of the end is written after it
                        CHECK(std::int64_t(curves(folder.path()).at("loss").size()) == step);
                      }});
  trainer.fit(toy::batches(40));
}

TEST_CASE("LogMetrics: a run that was interrupted has one row a step") {
  const TemporaryFolder folder;
  const auto train = [&](std::int64_t last, const lt::FitOptions& options) {
    ToyRun run;
    const auto interrupt = [&](lt::WindowContext& window) {
      if (window.run.progress().step == last) window.run.interrupt("a test");
    };
    lt::Trainer trainer(run.net, run.adam, toy::objective, lt::LogMetrics{.folder = folder.path()},
                        lt::SnapshotEvery{.folder = folder / "snapshots", .steps = 100},
                        lt::On{lt::kObserve, interrupt});
    return trainer.fit(toy::batches(10), options);
  };
  CHECK(train(3, {}).status == lt::FitStatus::interrupted);
  CHECK(train(0, {.resume = folder / "snapshots"}).steps == 10);
  std::vector<std::int64_t> steps;
  std::ifstream file(folder / "metrics.jsonl");
  report::MetricNames names;
  for (std::string line; std::getline(file, line);)
    steps.push_back(report::read_json_line(line, names)->step);
  CHECK(steps == std::vector<std::int64_t>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10});
}

TEST_CASE("LogMetrics: what a policy after it publishes at an epoch's end belongs to that step") {
  const TemporaryFolder folder;
  ToyRun run;
  lt::Trainer trainer(run.net, run.adam, toy::objective, lt::LogMetrics{.folder = folder.path()},
                      lt::On{lt::kObserve,
                             [&](lt::EpochContext& epoch) {
                               epoch.run.metrics().publish("late", double(epoch.run.progress().epoch));
                             }},
                      lt::SnapshotEvery{.folder = folder / "snapshots", .epochs = 1});
  trainer.fit(toy::batches(4), {.epochs = 2});
  const std::map<std::int64_t, double> late{{4, 1.0}, {8, 2.0}};
  CHECK(curves(folder.path()).at("late") == late);
}
