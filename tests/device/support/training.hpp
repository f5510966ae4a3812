// SPDX-License-Identifier: MIT
// Small runs of every policy and optimizer on a device, for tests that compare them with the CPU's, bit for
// bit, and that count their waits. All runs of an optimizer share one Trainer, whose policies are switched at
// run time, so that a further combination costs nothing to compile.
#pragma once

#include "support/precompiled.hpp"

#include <looptorch/loop/fit.hpp>
#include <looptorch/memory/recompute/checkpointed_call.hpp>
#include <looptorch/state/snapshot/snapshot_contents.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace training {

enum class Optimizer { fused_adamw, fused_adam, fused_sgd, adamw, sgd, rmsprop, adagrad, two_updates };

/// Where batches come from: vectors of tensors in some memory, or a loader.
enum class Source { pageable, pinned, on_device, loader };

/// The weight of a micro-batch: its samples as a number, the same as a tensor on the device, or, of every
/// third micro-batch, none.
enum class Weights { known, on_device, sparse, sparse_on_device };

/// The policy that is on, of those that may rerun or skip a window. Their Trainer has FusedAdamW and no
/// others.
enum class Rescue { none, autopsy, skip_bad_windows, retry_on_oom };

/// A run: the optimizer, the data, and the policies that are on. Two updates take none but `accumulate`,
/// `fp16`, `clip_norm` and `averages`; optimizers other than FusedAdamW none but those.
struct Settings {
  Optimizer optimizer = Optimizer::fused_adamw;
  Source source = Source::on_device;
  Weights weights = Weights::known;
  Rescue rescue = Rescue::none;
  std::int64_t epochs = 2, steps = 6;  ///< Steps an epoch.

  std::int64_t accumulate = 1;
  bool fp16 = false, bf16 = false, mixed_precision = false;
  std::optional<at::ScalarType> mixed_type = {};  ///< The type of Autocast<>; empty: the device's.
  double loss_scale = 1 << 24;  ///< Of fp16, at first; the default overflows in the first windows.
  bool averages = false;
  bool offload_averages = false;
  bool captures = false;  ///< Micro-batches run as graphs, of each form from the second on.
  bool clip_norm = false, clip_value = false;
  bool deterministic = false;
  bool draws = false;  ///< The model has dropout, whose masks differ from device to device.
  bool flush = false;
  bool logs = false;            ///< LogMetrics, a row a step, into a folder of its own.
  bool infinite_slope = false;  ///< Losses are finite, their gradients are not.
  bool metrics = false;         ///< The objective reports one, on the device.
  bool profiles = false;        ///< Profile of steps 2 and 3, into a folder of its own.
  bool progress = false;
  bool schedule = false;
  bool snapshots = false, resume = false;
  bool unfreeze = false;
  bool validate = false;       ///< Every third step; with StopEarly and RestoreBest.
  bool watch_updates = false;  ///< An `On` that needs each update's verdict at once.
  std::optional<looptorch::CheckpointMode> checkpointed = {};

  std::optional<at::Device> moves_to = {};  ///< Where the model goes before the last epoch.
  std::optional<at::Device> second = {};  ///< Where the second half of the model is; empty: beside the first.
};

/// Returns a loader's run with the policies that hold tensors: fp16, averages, clipping, a schedule,
/// validation.
[[nodiscard]] Settings many_policies(looptorch::CheckpointMode mode);

/// What is left of a run.
struct Outcome {
  looptorch::SnapshotContents contents;  ///< On the CPU, without the states of random generators.
  looptorch::FitResult result;
  double evaluated;           ///< The loss on held-out batches afterwards.
  std::vector<double> means;  ///< Of each update's loss and metrics.
  std::string graphs;         ///< What CaptureGraphs said of the last fit.
  std::int64_t waits = 0;  ///< Of the last fit, as docs/performance.md counts them on the simulated device.
};

/// Trains from a fixed seed. With `resume` the run ends in mid-epoch and goes on in new objects.
[[nodiscard]] Outcome train(const Settings& settings, at::Device device);

/// Returns the names of what differs, to the bit; empty if nothing does.
[[nodiscard]] std::string difference(const Outcome& a, const Outcome& b);

}  // namespace training
