// SPDX-License-Identifier: MIT
// What Profile's trace has of runs of which each step is known, and that it agrees with LogMetrics.
//
// Tests loop: run_phase
// Tests policies: profile
// Tests policies/watching: trace_recorder
#include "support/precompiled.hpp"

#include <looptorch/policies.hpp>
#include <looptorch/policies/log_metrics.hpp>
#include <looptorch/policies/profile.hpp>
#include <looptorch/trainer.hpp>

#include "support/catch.hpp"
#include "support/temporary_folder.hpp"
#include "support/toy.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <fstream>
#include <map>
#include <string>
#include <thread>
#include <vector>

namespace lt = looptorch;
using lt::testing::TemporaryFolder;

namespace profile_test {

const auto kSilent = [](const std::string&) {};

/// A range of a trace, in seconds.
struct Range {
  std::string name;
  double begin, end;
  std::size_t depth = 0;  ///< How many ranges it lies in.
  std::string within;     ///< The innermost of them.
  double own = 0;         ///< Without the phases within it.
};

bool is_phase(const std::string& name) {
  return name.find('.') == name.npos && !name.starts_with("ProfilerStep");
}

/// Reads a trace's ranges in order, and checks that they nest.
std::vector<Range> ranges_of(const std::filesystem::path& file) {
  const lt::Json trace = lt::Json::parse(lt::read_file(file));
  std::vector<Range> ranges;
  for (const lt::Json& event : trace.at("traceEvents").as_array()) {
    if (!event.contains("cat") || event.at("cat").as_string() != "user_annotation") continue;
    const double begin = event.at("ts").as_number() / 1e6;
    ranges.push_back({event.at("name").as_string(), begin, begin + event.at("dur").as_number() / 1e6, 0, {}});
  }
  std::stable_sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) {
    return a.begin < b.begin || (a.begin == b.begin && a.end > b.end);
  });
  std::vector<std::size_t> open;
  constexpr double kRounding = 5e-8;  // of a nanosecond clock, as microseconds in a double
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    Range& range = ranges[i];
    while (!open.empty() && ranges[open.back()].end <= range.begin + kRounding) open.pop_back();
    range.depth = open.size(), range.own = range.end - range.begin;
    if (!open.empty()) {
      INFO(range.name << " in " << ranges[open.back()].name);
      CHECK(range.end <= ranges[open.back()].end + kRounding);
      range.within = ranges[open.back()].name;
    }
    if (is_phase(range.name))
      for (auto outer = open.rbegin(); outer != open.rend(); ++outer)
        if (is_phase(ranges[*outer].name)) {
          ranges[*outer].own -= range.end - range.begin;
          break;
        }
    open.push_back(i);
  }
  return ranges;
}

std::map<std::string, int> counts(const std::vector<Range>& ranges) {
  std::map<std::string, int> counts;
  for (const Range& range : ranges) ++counts[range.name];
  return counts;
}

void pause(int milliseconds) { std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds)); }

struct ToyRun {
  toy::Net net = toy::net();
  lt::FusedAdamW adam{net->parameters(), {.lr = 0.01}};
};

/// Counts the ranges that this thread opens while it lives.
class CountedRanges {
 public:
  CountedRanges()
      : handle_(at::addThreadLocalCallback(
            at::RecordFunctionCallback(&CountedRanges::count).scopes({at::RecordScope::USER_SCOPE}))) {
    seen = 0;
  }
  ~CountedRanges() { at::removeCallback(handle_); }
  static inline int seen = 0;

 private:
  static std::unique_ptr<at::ObserverContext> count(const at::RecordFunction&) { return ++seen, nullptr; }
  at::CallbackHandle handle_;
};

}  // namespace profile_test

using profile_test::counts, profile_test::kSilent, profile_test::pause, profile_test::Range,
    profile_test::ranges_of, profile_test::ToyRun;

TEST_CASE("Profile: a trace of the chosen steps, with phases and policies as ranges") {
  const TemporaryFolder folder;
  const auto batches = toy::batches(12);
  ToyRun run;
  std::string told;
  lt::Trainer trainer(run.net, run.adam, toy::objective, lt::Accumulate<2>{}, lt::ClipGradNorm{1.0},
                      lt::AverageWeights{}, lt::Validate(batches),
                      lt::Profile{.folder = folder / "new",
                                  .first = 6,
                                  .last = 8,
                                  .report = [&](const std::string& text) { told += text; }},
                      lt::SnapshotEvery{.folder = folder / "snapshots", .steps = 7});
  trainer.fit(batches, {.epochs = 2});
  const auto file = folder / "new" / "trace.json";
  CHECK_THAT(told, Catch::Contains("trace.json has steps 6 to 8; open it in https://ui.perfetto.dev"));

  const auto ranges = ranges_of(file);
  auto count = counts(ranges);
  CHECK((count["ProfilerStep#6"] == 1 && count["ProfilerStep#7"] == 1 && count["ProfilerStep#8"] == 1));
  CHECK((count["ProfilerStep#5"] == 0 && count["ProfilerStep#9"] == 0));
  for (const char* phase : {"forward", "backward"}) CHECK(count[phase] == 6);
  for (const char* phase : {"update", "window end", "ClipGradNorm.before_update"}) CHECK(count[phase] == 3);
  CHECK(count["SnapshotEvery.on_window_end"] == 3);
  CHECK((count["snapshot"] == 1 && count["evaluation"] == 1));  // step 6 ends the first epoch
  CHECK(count["data wait"] >= 6);
  std::map<std::string, std::string> within;
  for (const Range& range : ranges) within[range.name] = range.within;
  for (const char* phase : {"forward", "backward", "update", "window end", "data wait"})
    CHECK_THAT(within[phase], Catch::StartsWith("ProfilerStep#"));
  CHECK(within["ClipGradNorm.before_update"] == "update");
  CHECK(within["SnapshotEvery.on_window_end"] == "window end");
  CHECK(within["snapshot"] == "SnapshotEvery.on_window_end");
  CHECK_THAT(within["evaluation"], Catch::StartsWith("Validate<"));
  bool swaps = false;
  for (const Range& range : ranges)
    swaps |= range.name.ends_with(".evaluation_scope") && range.within == "evaluation";
  CHECK(swaps);  // AverageWeights
  const std::string text = lt::read_file(file);
  for (const char* part : {"\"aten::addmm\"", "\"AddmmBackward0\""}) CHECK(text.find(part) != text.npos);
  CHECK((text.find("Input Dims") == text.npos && text.find("[memory]") == text.npos));
}

TEST_CASE("Profile: the trace and LogMetrics agree on where the time of the same steps went") {
  const TemporaryFolder folder;
  struct Slow {
    std::int64_t size() const { return 32; }
    at::Tensor get(std::int64_t index) const {
      pause(2);
      return torch::full({4}, 0.01 * double(index), torch::kDouble);
    }
  };
  ToyRun run;
  const auto objective = [](toy::Net& net, const at::Tensor& batch) {
    pause(4);
    at::Tensor loss = net(batch).pow(2).mean();
    if (loss.requires_grad()) loss.register_hook([](const at::Tensor&) { pause(5); });
    return loss;
  };
  const auto in_update = [](lt::UpdateContext&) { pause(3); };
  lt::Trainer trainer(
      run.net, run.adam, objective, lt::Accumulate<2>{}, lt::On{lt::kClip, in_update},
      lt::Validate{std::vector<at::Tensor>(2, torch::ones({2, 4}, torch::kDouble)), {.every = 3}},
      lt::SnapshotEvery{.folder = folder / "snapshots", .steps = 4},
      lt::LogMetrics{.folder = folder.path(), .flush_seconds = 0, .page = false},
      lt::Profile{.folder = folder.path(), .first = 3, .last = 9, .report = kSilent});
  trainer.fit(lt::PinnedPrefetchLoader(Slow{}, {.batch_size = 4, .workers = 0}), {.epochs = 3});

  std::map<std::string, double> traced, logged;
  for (const Range& range : ranges_of(folder / "trace.json")) traced[range.name] += range.own;
  std::ifstream file(folder / "metrics.jsonl");
  lt::report::MetricNames names;
  for (std::string line; std::getline(file, line);) {
    const auto row = lt::report::read_json_line(line, names);
    if (row->step < 3 || row->step > 9) continue;
    for (const auto& [id, value] : row->values) logged[names[id]] += value;
  }
  traced["update"] += traced["window end"];
  const std::map<std::string, std::string> phases{
      {"time/data", "data wait"}, {"time/forward", "forward"},       {"time/backward", "backward"},
      {"time/update", "update"},  {"time/evaluation", "evaluation"}, {"time/snapshot", "snapshot"}};
  for (const auto& [metric, range] : phases) {
    INFO(metric << " " << logged[metric] << ", " << range << " " << traced[range]);
    CHECK(logged[metric] > 1e-4);
    CHECK(traced[range] == Approx(logged[metric]).epsilon(0.05).margin(2e-4));
  }
}

TEST_CASE("Profile: several updates have ranges of their own; When may switch it off") {
  const TemporaryFolder folder;
  for (const bool on : {false, true}) {
    toy::Net net = toy::net();
    lt::FusedAdamW first(net->first->parameters(), {.lr = 0.01}),
        second(net->second->parameters(), {.lr = 0.02});
    lt::Trainer trainer(
        net, lt::Update(first, toy::objective, {.name = "\"lower\""}),
        lt::Update(second, toy::objective, {.name = "upper", .every = 2}),
        lt::When{on, lt::Profile{.folder = folder.path(), .first = 2, .last = 3, .report = kSilent}});
    trainer.fit(toy::batches(5));
    CHECK(std::filesystem::exists(folder / "trace.json") == on);
  }
  auto count = counts(ranges_of(folder / "trace.json"));
  CHECK((count["forward ('lower')"] == 2 && count["backward ('lower')"] == 2 &&
         count["update ('lower')"] == 2));
  CHECK((count["forward (upper)"] == 1 && count["update (upper)"] == 1));
}

TEST_CASE("Profile: a run that ends early, before the steps, or within them by an exception") {
  const TemporaryFolder folder;
  const auto batches = toy::batches(6);
  std::string told;
  const auto profile = [&](std::int64_t first, std::int64_t last) {
    return lt::Profile{
        .folder = folder.path(), .first = first, .last = last, .report = [&](const std::string& text) {
          told = text;
        }};
  };
  const auto train = [&](const lt::Profile& profile, const auto& objective) {
    std::filesystem::remove(folder / "trace.json");
    ToyRun run;
    lt::Trainer trainer(run.net, run.adam, objective, lt::ClipGradNorm{1.0}, profile);
    trainer.fit(batches);
  };
  train(profile(5, 50), toy::objective);
  auto count = counts(ranges_of(folder / "trace.json"));
  CHECK((count["ProfilerStep#5"] == 1 && count["ProfilerStep#6"] == 1 && count["forward"] == 2));
  CHECK_THAT(told, Catch::Contains("has steps 5 to 6"));

  train(profile(7, 9), toy::objective);
  CHECK_FALSE(std::filesystem::exists(folder / "trace.json"));
  CHECK(
      told ==
      "Profile: no trace was written: steps 7 to 9 were asked for, and the fit began after step 0 and ended "
      "after step 6");

  int calls = 0;
  const auto fails = [&](toy::Net& net, const toy::Batch& batch) {
    if (++calls == 4) throw std::runtime_error("the objective fails");
    return toy::objective(net, batch);
  };
  CHECK_THROWS_WITH(train(profile(3, 9), fails), "the objective fails");
  CHECK_FALSE(torch::profiler::impl::profilerEnabled());
  count = counts(ranges_of(folder / "trace.json"));
  CHECK((count["ProfilerStep#3"] == 1 && count["ProfilerStep#4"] == 1));
  CHECK((count["forward"] == 2 && count["backward"] == 1));
}

TEST_CASE("Profile: a resumed run counts its steps on, and a second fit of one Trainer as well") {
  const TemporaryFolder folder;
  const auto batches = toy::batches(8);
  const auto train = [&](lt::FitOptions options, auto&& then) {
    ToyRun run;
    lt::Trainer trainer(run.net, run.adam, toy::objective,
                        lt::SnapshotEvery{.folder = folder / "snapshots", .steps = 3},
                        lt::Profile{.folder = folder.path(), .first = 5, .last = 7, .report = kSilent});
    trainer.fit(batches, options);
    then(trainer);
  };
  const auto nothing = [](auto&) {};
  train({.epochs = 2, .max_steps = 4}, nothing);
  CHECK_FALSE(std::filesystem::exists(folder / "trace.json"));
  train({.epochs = 2, .max_steps = 6, .resume = folder / "snapshots"}, [&](auto& trainer) {
    auto count = counts(ranges_of(folder / "trace.json"));
    CHECK((count["ProfilerStep#5"] == 1 && count["ProfilerStep#6"] == 1 && count["forward"] == 2));
    trainer.fit(batches, {.epochs = 2});
  });
  auto count = counts(ranges_of(folder / "trace.json"));
  CHECK((count["ProfilerStep#7"] == 1 && count["forward"] == 1));
}

TEST_CASE("Profile: a loop of step() is traced; one without an end drops what it has") {
  const TemporaryFolder folder;
  const auto batches = toy::batches(6);
  for (const std::size_t steps : {4, 3}) {
    ToyRun run;
    lt::Trainer trainer(run.net, run.adam, toy::objective,
                        lt::Profile{.folder = folder.path(), .first = 2, .last = 3, .report = kSilent});
    for (std::size_t i = 0; i < steps; ++i) trainer.step(batches[i]);
    CHECK(std::filesystem::exists(folder / "trace.json") == (steps == 4));
    if (steps == 4) CHECK(counts(ranges_of(folder / "trace.json"))["forward"] == 2);
    std::filesystem::remove(folder / "trace.json");
  }
  CHECK_FALSE(torch::profiler::impl::profilerEnabled());
}

TEST_CASE("Profile: shapes and allocations, if they are asked for") {
  const TemporaryFolder folder;
  ToyRun run;
  lt::Trainer trainer(
      run.net, run.adam, toy::objective,
      lt::Profile{
          .folder = folder.path(), .first = 2, .last = 2, .shapes = true, .memory = true, .report = kSilent});
  trainer.fit(toy::batches(3));
  const std::string text = lt::read_file(folder / "trace.json");
  for (const char* part : {"\"Input Dims\"", "\"[memory]\""}) CHECK(text.find(part) != text.npos);
}

TEST_CASE("Profile: options, a profiler that is on, and files that cannot be") {
  const TemporaryFolder folder;
  std::ofstream(folder / "file") << "x";
  std::filesystem::create_directories(folder / "taken" / "trace.json" / "x");
  const auto train = [](const lt::Profile& profile) {
    ToyRun run;
    lt::Trainer trainer(run.net, run.adam, toy::objective, profile);
    trainer.fit(toy::batches(4));
  };
  CHECK_THROWS_WITH(train({}), "Profile needs a folder");
  CHECK_THROWS_WITH(train({.folder = folder.path(), .first = 0}),
                    "Profile needs 1 <= first <= last, got first 0 and last 15");
  CHECK_THROWS_WITH(train({.folder = folder.path(), .first = 4, .last = 3}),
                    "Profile needs 1 <= first <= last, got first 4 and last 3");
  CHECK_THROWS_AS(train({.folder = folder / "file" / "x"}), std::filesystem::filesystem_error);
  CHECK_THROWS_AS(train({.folder = folder / "taken", .first = 2, .last = 3, .report = kSilent}),
                  lt::FileError);
  CHECK_FALSE(torch::profiler::impl::profilerEnabled());

  using namespace torch::profiler::impl;
  const ProfilerConfig config(ProfilerState::KINETO);
  torch::autograd::profiler::prepareProfiler(config, {ActivityType::CPU});
  torch::autograd::profiler::enableProfiler(config, {ActivityType::CPU});
  CHECK_THROWS_WITH(train({.folder = folder.path()}),
                    Catch::StartsWith("Profile needs LibTorch's profiler, which is on in this thread"));
  CHECK(torch::profiler::impl::profilerEnabled());  // it is another's
  torch::autograd::profiler::disableProfiler();
  train({.folder = folder.path(), .first = 1, .last = 1, .report = kSilent});
  CHECK(std::filesystem::exists(folder / "trace.json"));
}

TEST_CASE(
    "Profile: no range is opened without it, nor outside of its steps; training is the same bit for bit") {
  const TemporaryFolder folder;
  const auto batches = toy::batches(6);
  ToyRun plain, outside, within;
  const profile_test::CountedRanges counted;
  const auto train = [&](ToyRun& run, auto... policies) {
    lt::Trainer trainer(run.net, run.adam, toy::objective, lt::ClipGradNorm{1.0}, policies...);
    using Stack = std::remove_reference_t<decltype(lt::detail::TrainerAccess::engine(trainer).stack())>;
    static_assert(Stack::template has<lt::detail::hook_scope_hook>() == (sizeof...(policies) > 0));
    static_assert(Stack::template has<lt::detail::phase_scope_hook>() == (sizeof...(policies) > 0));
    trainer.fit(batches, {.epochs = 2});
    return std::exchange(profile_test::CountedRanges::seen, 0);
  };
  CHECK(train(plain) == 0);
  CHECK(train(outside, lt::Profile{.folder = folder.path(), .first = 99, .last = 99, .report = kSilent}) ==
        0);
  CHECK(train(within, lt::Profile{.folder = folder.path(), .first = 2, .last = 3, .report = kSilent}) > 10);
  CHECK(toy::distance(plain.net, outside.net) == 0);
  CHECK(toy::distance(plain.net, within.net) == 0);
}
