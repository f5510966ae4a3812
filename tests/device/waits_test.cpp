// SPDX-License-Identifier: MIT
// Simulated device only. Counts how often the host waits for the device, for every policy, optimizer and
// source of batches, and compares with the tables in docs/performance.md. LOOPTORCH_WRITE_WAITS=1 writes them
// there.
#include "support/precompiled.hpp"

#include "device/support/page_table.hpp"
#include "device/support/training.hpp"
#include "support/device.hpp"

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

using training::Optimizer, training::Rescue, training::Settings, training::Source, training::Weights;
using Mode = looptorch::CheckpointMode;

namespace {

const std::string kHead = "| run | a step | an epoch | a fit | why |",
                  kUsualHead = "| runs that add no wait |";

/// A run; `why` explains waits beyond those of every run: one an epoch and one a fit.
struct Row {
  std::string name;
  Settings settings;
  std::string why = {};
};

std::vector<Row> rows() {
  const std::string by_host = "LibTorch's own optimizers cannot take a verdict from the device";
  const std::string to_seek = "until the first update, the host searches for the loss scale";
  return {
      {"`FusedAdamW`, batches on the device", {}},
      {"batches in pinned memory", {.source = Source::pinned}},
      {"batches in pageable memory", {.source = Source::pageable}},
      {"`PinnedPrefetchLoader`", {.source = Source::loader}},
      {"weights on the device",
       {.weights = Weights::on_device, .accumulate = 2},
       "the loss is a quotient of two numbers on the device"},
      {"metrics of the objective", {.metrics = true}},
      {"`Accumulate<2>`", {.accumulate = 2}},
      {"`Autocast<bf16>`", {.bf16 = true}},
      {"`Autocast<fp16>`", {.fp16 = true}, to_seek},
      {"`Autocast<>`", {.mixed_precision = true}, to_seek},
      {"`AverageWeights`", {.averages = true}},
      {"`AverageWeights`, on the host", {.averages = true, .offload_averages = true}},
      {"`Autopsy`",
       {.rescue = Rescue::autopsy},
       "the host reads whether loss and gradients are finite before the update"},
      {"`BackendFlags`", {.deterministic = true}},
      {"`CacheFlushEvery<4>`", {.flush = true}, "emptying the cache waits for the device"},
      {"`Checkpointed`, recompute", {.checkpointed = Mode::recompute}},
      {"`Checkpointed`, offload", {.checkpointed = Mode::offload}},
      {"`ClipGradNorm`", {.clip_norm = true}},
      {"`ClipGradValue`", {.clip_value = true}},
      {"`LogMetrics`, a row a step, `ClipGradNorm`", {.clip_norm = true, .logs = true, .metrics = true}},
      {"`On` after each update",
       {.watch_updates = true},
       "hooks after an update need the device's verdict at once"},
      {"`Profile` of two steps", {.profiles = true}, "the traced steps begin and end with a wait"},
      {"`RetryOnOom`", {.rescue = Rescue::retry_on_oom}},
      {"`ScheduleLr`", {.schedule = true}},
      {"`ShowProgress`, a line a step", {.progress = true}, "a line reads the last verdict and the loss"},
      {"`SkipBadWindows`", {.rescue = Rescue::skip_bad_windows}, "the host reads the loss before the update"},
      {"`SnapshotEvery`, every third step", {.snapshots = true}, "a snapshot has the last verdict"},
      {"`UnfreezeAt`", {.unfreeze = true}},
      {"`Validate` every third step, `StopEarly`, `RestoreBest`",
       {.validate = true},
       "an evaluation reads the last verdict, and in the end its result"},
      {"`Accumulate<2>`, `Autocast<fp16>`, `AverageWeights`, `ClipGradNorm`, `ScheduleLr`, loader",
       {.source = Source::loader,
        .accumulate = 2,
        .fp16 = true,
        .averages = true,
        .clip_norm = true,
        .schedule = true},
       to_seek},
      {"a model on two devices", {.second = looptorch::testing::test_device(1)}},
      {"a model on two devices, `Accumulate<2>`, `Autocast<fp16>`, `AverageWeights`, `ClipGradNorm`",
       {.accumulate = 2,
        .fp16 = true,
        .averages = true,
        .clip_norm = true,
        .second = looptorch::testing::test_device(1)},
       "an epoch's end reads the overflow from the first device, and the loss scale from the second; " +
           to_seek},
      {"`FusedAdam`", {.optimizer = Optimizer::fused_adam}},
      {"`FusedSGD`", {.optimizer = Optimizer::fused_sgd}},
      {"two updates, `Accumulate<2>`, `Autocast<fp16>`",
       {.optimizer = Optimizer::two_updates, .accumulate = 2, .fp16 = true},
       "a loss of each update; " + to_seek},
      {"`torch::optim::AdamW`", {.optimizer = Optimizer::adamw}, by_host},
      {"`torch::optim::SGD`", {.optimizer = Optimizer::sgd}, by_host},
      {"`torch::optim::SGD`, `Autocast<fp16>`",
       {.optimizer = Optimizer::sgd, .fp16 = true},
       by_host + "; " + to_seek},
  };
}

double waits(Settings settings, std::int64_t epochs, std::int64_t steps) {
  settings.epochs = epochs, settings.steps = steps;
  return static_cast<double>(training::train(settings, looptorch::testing::test_device()).waits);
}

/// Waits of one step, and those that an epoch and a fit add.
struct Waits {
  double step, epoch, fit;
  [[nodiscard]] bool are_usual() const { return step == 0 && epoch == 1 && fit == 1; }
};

Waits count(const Settings& settings) {
  constexpr std::int64_t kSteps = 12;  // a multiple of what policies do every few steps
  const double one = waits(settings, 1, kSteps), longer = waits(settings, 1, 2 * kSteps),
               two = waits(settings, 2, kSteps);
  const double step = (longer - one) / kSteps, epoch = two - longer;
  return {step, epoch, one - epoch - kSteps * step};
}

std::string cell(double number) {
  std::ostringstream text;
  text << std::round(number * 100) / 100;
  return text.str();
}

std::string line(const Row& row, const Waits& waits) {
  return "| " + row.name + " | " + cell(waits.step) + " | " + cell(waits.epoch) + " | " + cell(waits.fit) +
         " | " + row.why + " |";
}

}  // namespace

TEST_CASE("the host waits for the device where docs/performance.md says so, and nowhere else") {
  std::vector<std::string> table, usual;
  (void)training::train({}, looptorch::testing::test_device());  // what begins with the process
  for (const Row& row : rows()) {
    const Waits waits = count(row.settings);
    INFO(line(row, waits));
    CHECK(waits.are_usual() == row.why.empty());
    if (row.why.empty())
      usual.push_back("| " + row.name + " |");
    else
      table.push_back(line(row, waits));
  }
  const Row all{.name = "each run in the next table", .settings = {}, .why = "every run has these"};
  table.insert(table.begin(), line(all, {0, 1, 1}));
  for (const auto& [head, rows] : {std::pair{kHead, table}, std::pair{kUsualHead, usual}}) {
    looptorch::testing::PageTable page("performance.md", head);
    if (std::getenv("LOOPTORCH_WRITE_WAITS")) page.write(rows);
    CHECK(page.rows() == rows);
  }
}
