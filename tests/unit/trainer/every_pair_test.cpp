// SPDX-License-Identifier: MIT
// Every pair of policies that docs/policies.md admits: trained through, and trained, killed or
// stopped at a random moment and resumed by other objects, the run ends with the same bits. Every pair that
// it refuses is refused. One Trainer lists all policies under When, so one compilation covers all pairs.
// Triples and processes that SIGKILL ends are tried in samples, and in full by `ctest -C long -L long`:
// LOOPTORCH_TRIPLES and LOOPTORCH_KILLED_PAIRS say how many.
//
// Tests loop/compose: rules
#include "support/precompiled.hpp"

#include <looptorch/memory/measure/host_memory.hpp>
#include <looptorch/policies.hpp>
#include <looptorch/policies/log_metrics.hpp>
#include <looptorch/policies/save_weights.hpp>
#include <looptorch/trainer.hpp>

#include "support/numbered_samples.hpp"
#include "support/policy_pairs.hpp"
#include "support/temporary_folder.hpp"
#include "support/whole_run.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bitset>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

using namespace looptorch;
using looptorch::testing::TemporaryFolder;
using numbered::Batch;

namespace {

constexpr std::size_t kSize = policy_pairs::kSize;
using Listed = std::bitset<kSize>;
constexpr std::int64_t kWindows = 12, kPerEpoch = 6;

const std::vector<std::string_view>& names() {
  static const std::vector<std::string_view> all = [] {
    std::vector<std::string_view> names;
    std::apply([&](const auto&... entry) { (names.push_back(entry.name), ...); }, policy_pairs::kCatalogue);
    return names;
  }();
  return all;
}
std::size_t index_of(std::string_view name) {
  for (std::size_t i = 0; i < kSize; ++i)
    if (names()[i] == name) return i;
  throw std::runtime_error("no policy " + std::string(name));
}

/// The compiled table: which pairs are refused.
const std::array<Listed, kSize>& refused() {
  static const auto table = [] {
    std::array<Listed, kSize> table;
    looptorch::detail::for_each_index<kSize>([&](auto i) {
      looptorch::detail::for_each_index<kSize>([&](auto j) {
        if (i != j)
          table[i][j] = policy_pairs::refused<policy_pairs::policy_t<i>, policy_pairs::policy_t<j>>();
      });
    });
    return table;
  }();
  return table;
}
bool is_refused(const Listed& listed) {
  for (std::size_t i = 0; i < kSize; ++i)
    if (listed[i] && (refused()[i] & listed).any()) return true;
  return false;
}

struct NetImpl : torch::nn::Module {
  NetImpl() {
    register_module("first", first);
    register_module("second", second);
  }
  at::Tensor forward(const at::Tensor& x) {
    return second(torch::dropout(torch::relu(first(x)), 0.2, is_training()));
  }
  Checkpointed<torch::nn::Linear> first{4, 8};
  torch::nn::Linear second{8, 3};
};
TORCH_MODULE(Net);

struct Killed {};

/// Samples of which one may be NaN.
struct Samples {
  std::int64_t count;
  bool one_is_bad;
  [[nodiscard]] std::int64_t size() const { return count; }
  [[nodiscard]] Batch get(std::int64_t index) const {
    Batch sample = numbered::Samples{count}.get(index);
    if (one_is_bad && index == 5) sample.features.fill_(NAN);
    return sample;
  }
  [[nodiscard]] Batch collate(std::span<Batch> samples) const {
    return numbered::Samples{count}.collate(samples);
  }
};

/// How a run ends before its end.
struct End {
  std::int64_t killed_at = -1;   // call of the objective, from 0
  std::int64_t stopped_at = -1;  // step
  std::int64_t snapshot_every = 2;
};
constexpr End kResumedByNone{.snapshot_every = kWindows};  // writing snapshots takes half of a run

/// Publishes a metric for those that consume one, and knows the step.
struct Probe {
  static constexpr Phase phase = Phase::evaluate;  // as Validate, before policies that consume the metric
  std::int64_t* step;
  std::int64_t stop_at;
  void on_fit_begin(FitContext& fit) const { fit.run.metrics().announce("probe."); }
  void on_fit_ready(FitContext& fit) const { *step = fit.run.progress().step; }
  void on_window_end(WindowContext& window) const {
    *step = window.run.progress().step;
    if (*step % 3 == 0) window.run.metrics().publish("probe.loss", std::cos(static_cast<double>(*step)));
    if (*step == stop_at) window.run.interrupt("the test");
  }
};

std::FILE* nowhere() {
  static std::FILE* const file = std::fopen("/dev/null", "w");
  return file;
}
const auto kSilent = [](const std::string&) {};

/// One process: objects of its own.
struct Process {
  Process(const Listed& listed, std::filesystem::path folder, End end)
      : on(listed), folder(std::move(folder)), end(end) {
    torch::manual_seed(7);
    net = Net();
    optimizer = std::make_unique<FusedAdamW>(net->parameters(), FusedAdamWOptions{.lr = 0.05});
  }
  [[nodiscard]] bool lists(std::string_view name) const { return on[index_of(name)]; }

  Loss objective(Net& net, const Batch& batch) {
    if (calls++ >= end.killed_at && end.killed_at >= 0) throw Killed{};
    if (lists("RetryOnOom") && step == 4 && net->is_training() && !std::exchange(ran_out, true))
      TORCH_CHECK_WITH(OutOfMemoryError, false, "no memory");
    return {
        .value = torch::nn::functional::cross_entropy(net(batch.features).to(torch::kFloat), batch.labels),
        .weight = batch.labels.size(0)};
  }

  /// Trains to the end, or until it is killed or stopped; returns what a snapshot of the end would hold.
  std::optional<SnapshotContents> run(bool resumes) {
    const LoaderOptions loading{.batch_size = 2, .workers = 1};
    const RandomSampler order{.seed = 3};
    const std::vector<Batch> held_out{numbered::Samples{9}.collate(samples_of(9))};
    const bool accumulates = lists("Accumulate");
    const bool half = lists("Autocast<fp16>");
    const Samples samples{(accumulates ? 3 : 1) * 2 * kPerEpoch,
                          lists("SkipBadWindows") && !(half && lists("Autopsy"))};
    const auto when = [&](std::string_view name, auto policy) {
      return When{lists(name), std::move(policy)};
    };
    Trainer trainer(
        net, *optimizer, [this](Net& net, const Batch& batch) { return objective(net, batch); },
        when("Accumulate", Accumulate<3>{}),
        when("Autocast<fp16>", Autocast<fp16>{.initial_scale = 1 << 24, .growth_interval = 4}),
        when("Autocast<bf16>", Autocast<bf16>{}),
        when("Autopsy", Autopsy{.spikes = 2, .warm_up = 2, .report = kSilent}),
        when("AverageWeights", AverageWeights{.rule = Ema{.decay = 0.9}}),
        when("BackendFlags", BackendFlags{.tf32 = false}), when("CacheFlushEvery", CacheFlushEvery<2>{}),
        when("CaptureGraphs", CaptureGraphs{.report = kSilent}),
        when("Checkpointed", Checkpointed<torch::nn::Linear>{}), when("ClipGradNorm", ClipGradNorm{0.5}),
        when("ClipGradValue", ClipGradValue{0.1}),
        when("LogMetrics", LogMetrics{.folder = folder / "log", .page = false}),
        when("Autocast<>", Autocast<>{}), when("On", On{kObserve, policy_pairs::OnWindow{}}),
        when("PinnedPrefetchLoader", PinnedPrefetchLoader(loading, order)),
        when("Profile", Profile{.folder = folder / "trace", .first = 2, .last = 4, .report = kSilent}),
        when("RestoreBest", RestoreBest{.metric = "probe.loss"}),
        when("RetryOnOom", RetryOnOom{.relax_after = 2, .report = kSilent}),
        when("SaveWeights", SaveWeights{.file = folder / "model.safetensors", .out = nullptr}),
        when("ScheduleLr", ScheduleLr{.decay = CosineDecay{}, .warmup_steps = 3}),
        when("ShowProgress", ShowProgress{.out = nowhere()}),
        when("SkipBadWindows", SkipBadWindows{.report = kSilent}),
        SnapshotEvery{.folder = folder / "snapshots", .steps = end.snapshot_every},
        when("StopEarly", StopEarly{.metric = "probe.loss", .patience = 3}),
        when("UnfreezeAt", UnfreezeAt{{.epoch = 1, .patterns = {"first.*"}}}),
        when("UpdateInBackward", UpdateInBackward{}),
        when("UpdateInBackward<Sums>", UpdateInBackward<SumsInBf16>{}),
        when("Validate", Validate{held_out, {.every = 2}}), when("WatchMemory", WatchMemory{.out = nullptr}),
        when("Freeze", Freeze{"second.bias"}), when("WatchRounding", WatchRounding{.every = 2}),
        Probe{&step, end.stopped_at});
    const FitOptions options{
        .epochs = 9, .max_steps = kWindows, .resume = resumes ? folder / "snapshots" : ""};
    try {
      const FitResult result = lists("PinnedPrefetchLoader")
                                   ? trainer.fit(samples, options)
                                   : trainer.fit(PinnedPrefetchLoader(samples, loading, order), options);
      if (result.status == FitStatus::interrupted) return std::nullopt;
      return whole_run::kept(trainer.snapshot());
    } catch (const Killed&) {
      return std::nullopt;
    }
  }

  static std::vector<Batch>& samples_of(std::int64_t count) {
    static std::vector<Batch> samples;
    samples.clear();
    for (std::int64_t i = 0; i < count; ++i) samples.push_back(numbered::Samples{count}.get(i));
    return samples;
  }

  Listed on;
  std::filesystem::path folder;
  End end;
  Net net{nullptr};
  std::unique_ptr<FusedAdamW> optimizer;
  std::int64_t step = 0, calls = 0;
  bool ran_out = false;
};

/// Leaves out what says how much memory the process had.
SnapshotContents comparable(SnapshotContents contents) {
  StateDict state;
  for (const auto& [key, value] : contents.state.values())
    if (key.find("WatchMemory") == std::string::npos) state.set(key, value);
  contents.state = std::move(state);
  return contents;
}

std::string text_of(const Listed& listed) {
  std::string text;
  for (std::size_t i = 0; i < kSize; ++i)
    if (listed[i]) text += std::string(names()[i]) + " ";
  return text;
}

bool has_snapshot(const std::filesystem::path& folder) {
  return std::filesystem::exists(folder) && !list_snapshots(folder).empty();
}

/// Trains through, and with an end at a random moment; returns what differs.
std::string differences(const Listed& listed, std::mt19937_64& random) {
  const auto below = [&](std::int64_t limit) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(limit));
  };
  TemporaryFolder through, broken;
  Process whole(listed, through.path(), kResumedByNone);
  const auto expected = whole.run(/*resumes=*/false);
  if (!expected) return "the whole run did not end";
  End end;
  below(2) == 0 ? void(end.killed_at = below(whole.calls))
                : void(end.stopped_at = 1 + below(expected->step - 1));
  Process first(listed, broken.path(), end);
  auto reached = first.run(false);  // a call may have been Autopsy's, which survives it
  Process second(listed, broken.path(), kResumedByNone);
  if (!reached) reached = second.run(has_snapshot(broken.path() / "snapshots"));
  if (!reached) return "the resumed run did not end";
  const std::string difference = whole_run::difference(comparable(*expected), comparable(*reached));
  return difference.empty() ? ""
                            : message(difference, "(killed at call ", end.killed_at, ", stopped at step ",
                                      end.stopped_at, ")");
}

void expect_conflict(const Listed& listed) {
  TemporaryFolder folder;
  CHECK_THROWS_AS(Process(listed, folder.path(), {}).run(false), PolicyConflict);
}

/// Snapshots go to memory: thousands of them are written.
void use_memory_for_files() {
  at::set_num_threads(1);
  if (std::filesystem::is_directory("/dev/shm")) ::setenv("TMPDIR", "/dev/shm", 1);
}

std::int64_t from_environment(const char* name, std::int64_t standard) {
  const char* const value = std::getenv(name);
  return value ? std::atoll(value) : standard;
}

}  // namespace

TEST_CASE("pairs: every admitted pair resumes bit for bit, and every other is refused") {
  use_memory_for_files();
  std::mt19937_64 random(static_cast<std::uint64_t>(from_environment("LOOPTORCH_PAIR_SEED", 1)));
  std::int64_t admitted = 0, others = 0;
  for (std::size_t i = 0; i < kSize; ++i)
    for (std::size_t j = i + 1; j < kSize; ++j) {
      const Listed listed = Listed().set(i).set(j);
      INFO(text_of(listed));
      if (is_refused(listed)) {
        expect_conflict(listed);
        ++others;
      } else {
        CHECK(differences(listed, random) == "");
        ++admitted;
      }
    }
  CHECK(admitted + others == static_cast<std::int64_t>(kSize * (kSize - 1) / 2));
  CHECK(others > 10);
}

namespace {

/// Begins a process that trains in `folder` from what is there, and leaves in `folder/end` what a snapshot of
/// the end would hold.
pid_t begin(const Listed& listed, const std::filesystem::path& folder) {
  const pid_t process = ::fork();
  if (process > 0) return process;
  int code = 3;
  try {
    Process trains(listed, folder, {});
    if (const auto reached = trains.run(has_snapshot(folder / "snapshots"))) {
      write_snapshot(folder / "end", *reached);
      code = 0;
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", text_of(listed).c_str(), error.what());
  }
  std::_Exit(code);
}
/// Returns the exit code, or the negative of a signal.
int wait_for(pid_t process) {
  int status = 0;
  ::waitpid(process, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}
SnapshotContents end_of(const std::filesystem::path& folder) {
  return comparable(read_snapshot(find_newest_snapshot(folder / "end").path));
}

}  // namespace

TEST_CASE("pairs: a process that is killed by SIGKILL at a random moment is gone on with bit for bit") {
  use_memory_for_files();
  std::mt19937_64 random(static_cast<std::uint64_t>(from_environment("LOOPTORCH_PAIR_SEED", 1)));
  std::vector<Listed> pairs;
  for (std::size_t i = 0; i < kSize; ++i)
    for (std::size_t j = i + 1; j < kSize; ++j)
      if (const Listed listed = Listed().set(i).set(j); !is_refused(listed)) pairs.push_back(listed);
  std::shuffle(pairs.begin(), pairs.end(), random);
  pairs.resize(
      std::min(pairs.size(), static_cast<std::size_t>(from_environment("LOOPTORCH_KILLED_PAIRS", 12))));
  std::uniform_real_distribution<double> moments(0.0, 1.05);
  int killed = 0, resumed = 0;
  for (const Listed& listed : pairs) {
    INFO(text_of(listed));
    TemporaryFolder through, broken;
    const auto began = std::chrono::steady_clock::now();
    REQUIRE(wait_for(begin(listed, through.path())) == 0);
    const std::chrono::duration<double> lifetime = std::chrono::steady_clock::now() - began;
    const pid_t process = begin(listed, broken.path());
    std::this_thread::sleep_for(lifetime * moments(random));
    ::kill(process, SIGKILL);
    const int how = wait_for(process);
    REQUIRE((how == 0 || how == -SIGKILL));
    killed += how != 0, resumed += how != 0 && has_snapshot(broken.path() / "snapshots");
    if (how != 0) REQUIRE(wait_for(begin(listed, broken.path())) == 0);
    CHECK(whole_run::difference(end_of(through.path()), end_of(broken.path())) == "");
  }
  CHECK(killed > 0);
  CHECK(resumed > 0);
}

TEST_CASE("pairs: seeded triples resume bit for bit") {
  use_memory_for_files();
  std::mt19937_64 random(static_cast<std::uint64_t>(from_environment("LOOPTORCH_PAIR_SEED", 1)));
  for (std::int64_t count = from_environment("LOOPTORCH_TRIPLES", 10); count > 0;) {
    Listed listed;
    while (listed.count() < 3) listed.set(random() % kSize);
    if (is_refused(listed)) continue;
    --count;
    INFO(text_of(listed));
    CHECK(differences(listed, random) == "");
  }
}

namespace {

/// A run for single cases: windows of any length, averages that may begin late, bf16 if asked for.
struct Case {
  std::int64_t samples = 12, window = 1, begin_after = 0, epochs = 0, max_steps = 12;
  bool half = false;
};

/// Calls `use(trainer, loader)` with new objects.
template <class Use>
void with_trainer(const Case& of, const std::filesystem::path& folder, const Use& use) {
  torch::manual_seed(7);
  Net net;
  FusedAdamW optimizer(net->parameters(), {.lr = 0.05});
  const std::vector<Batch> held_out{numbered::Samples{9}.collate(Process::samples_of(9))};
  const auto objective = [](Net& net, const Batch& batch) {
    return Loss{
        .value = torch::nn::functional::cross_entropy(net(batch.features).to(torch::kFloat), batch.labels),
        .weight = batch.labels.size(0)};
  };
  Trainer trainer(net, optimizer, objective, Accumulate<>{of.window}, When{of.half, Autocast<bf16>{}},
                  AverageWeights{.rule = Ema{.decay = 0.9}, .begin_after = of.begin_after},
                  Validate{held_out, ValidateOptions{.every = 1}},
                  SnapshotEvery{.folder = folder, .steps = 1, .keep = 100});
  PinnedPrefetchLoader loader(Samples{of.samples, false}, {.batch_size = 2, .workers = 1},
                              RandomSampler{.seed = 3});
  use(trainer, loader);
}

FitOptions options_of(const Case& of, const std::filesystem::path& resume = {}) {
  FitOptions options{.epochs = 9, .max_steps = of.max_steps, .resume = resume};
  if (of.epochs > 0) options.epochs = of.epochs, options.max_steps.reset();
  return options;
}

/// Resumes at each of the steps in turn; the run must end as one that was left alone.
void check_resumed(const Case& of, const std::vector<Case>& parts) {
  TemporaryFolder through, broken;
  std::optional<SnapshotContents> expected, reached;
  with_trainer(of, through.path(), [&](auto& trainer, auto& loader) {
    trainer.fit(loader, options_of(of));
    expected = whole_run::kept(trainer.snapshot());
  });
  for (std::size_t i = 0; i <= parts.size(); ++i)
    with_trainer(of, broken.path(), [&](auto& trainer, auto& loader) {
      const Case& length = i < parts.size() ? parts[i] : of;
      trainer.fit(loader, options_of(length, i == 0 ? std::filesystem::path() : broken.path()));
      reached = whole_run::kept(trainer.snapshot());
    });
  CHECK(whole_run::difference(*expected, *reached) == "");
}

}  // namespace

TEST_CASE("resumed: before the first of averages that begin late, which evaluation does not use until then") {
  TemporaryFolder folder;
  const Case late{.begin_after = 8};
  check_resumed(late, {{.begin_after = 8, .max_steps = 5}, {.begin_after = 8, .max_steps = 8}});
  const auto loss_of = [&](std::int64_t begin_after) {
    double loss = 0;
    with_trainer({.begin_after = begin_after}, folder / std::to_string(begin_after),
                 [&](auto& trainer, auto& loader) {
                   trainer.fit(loader, {.epochs = 9, .max_steps = 5});
                   loss = trainer.metrics().find("validation.loss").value();
                 });
    return loss;
  };
  const double late_loss = loss_of(8);
  CHECK(late_loss == loss_of(100));  // plain weights
  CHECK(late_loss != loss_of(0));
}

TEST_CASE("resumed: epochs that are shorter than a window, at an epoch's end, and twice in one epoch") {
  check_resumed({.samples = 4, .window = 5},
                {{.samples = 4, .window = 5, .max_steps = 1}, {.samples = 4, .window = 5, .max_steps = 7}});
  check_resumed({.epochs = 3}, {{.epochs = 1}, {.epochs = 2}});
  check_resumed({}, {{.max_steps = 7}, {.max_steps = 9}});
}

TEST_CASE("a long evaluation under autocast takes no more memory than a short one") {
  use_memory_for_files();
  TemporaryFolder folder;
  HostMemory& memory = HostMemory::counted();
  with_trainer({.half = true}, folder.path(), [&](auto& trainer, auto& loader) {
    trainer.fit(loader, {.epochs = 9, .max_steps = 2});
    const std::vector<Batch> once{numbered::Samples{9}.collate(Process::samples_of(9))},
        often(2000, once.front());
    const auto peak = [&](const std::vector<Batch>& batches) {
      memory.reset_peak();
      const std::int64_t before = memory.allocated_bytes();
      (void)trainer.evaluate(batches);
      CHECK(memory.allocated_bytes() == before);
      return memory.peak_bytes() - before;
    };
    (void)peak(once);
    const std::int64_t of_one = peak(once);
    CHECK(peak(often) == of_one);
    CHECK(of_one > 0);
  });
}
