// SPDX-License-Identifier: MIT
// The settings that every training program has, and what the library takes instead of them: FitOptions,
// LoaderOptions, a snapshot to resume from. training_flags.hpp adds their flags to a command line.
#pragma once

#include <looptorch/app/run_main.hpp>
#include <looptorch/base/random.hpp>
#include <looptorch/data/loader/loader_options.hpp>
#include <looptorch/loop/fit.hpp>
#include <looptorch/state/snapshot/choose_snapshot.hpp>

#include <ATen/Context.h>

#include <cstdint>
#include <filesystem>
#include <iostream>
#include <optional>
#include <string>
#include <utility>

namespace looptorch::app {

/// The standard settings of a training program. A program writes its own defaults into the fields and hands
/// single ones to policies: `Accumulate<>{options.gradient_accumulation}`.
struct TrainingOptions {
  std::int64_t epochs = 1;
  std::int64_t max_steps = 0;              ///< 0: the epochs alone decide
  std::int64_t batch_size = 8;             ///< samples in one forward pass
  std::int64_t gradient_accumulation = 1;  ///< batches in one step
  double learning_rate = 1e-4;
  std::int64_t warmup_steps = 0;  ///< steps from rate 0 to the full rate
  bool mixed_precision = false;
  bool gradient_checkpointing = false;
  bool memory = false;                 ///< watch it (WatchMemory)
  bool preflight = false;              ///< dry steps first, which end a run that would not fit
  double memory_cap = 0;               ///< GB that a preflight allows; 0: what the device has free
  std::string device = "auto";         ///< for choose_device
  std::int64_t workers = 2, seed = 1;  ///< threads of each loader; seed of everything drawn
  std::filesystem::path cache = {};    ///< folder of decoded samples; empty: the program's choice
  std::int64_t snapshot_every = 0;     ///< steps; 0: none but those that the program takes anyway
  std::string resume = {};             ///< "", "auto", or a snapshot or a folder of them
  std::string on_bad_audio = "skip";   ///< or "stop"
  bool resume_changed = false;         ///< goes on with other settings than the snapshot's

  /// Returns epochs, max_steps, the snapshot to begin with, and whether its settings may be others; an empty
  /// path begins anew.
  [[nodiscard]] FitOptions fit_options(const std::filesystem::path& snapshot = {}) const {
    return {.epochs = epochs,
            .max_steps = max_steps > 0 ? std::optional(max_steps) : std::nullopt,
            .resume = snapshot,
            .resume_changed = resume_changed};
  }

  /// Returns batch size, workers, seed, and whether samples that cannot be used are skipped.
  [[nodiscard]] LoaderOptions loader_options() const {
    return {.batch_size = batch_size,
            .workers = workers,
            .seed = unsigned_seed(),
            .on_error = skips_bad_audio() ? OnError::skip : OnError::fail};
  }

  [[nodiscard]] bool skips_bad_audio() const { return on_bad_audio == "skip"; }

  /// True if snapshots are asked for, or were taken by the run that goes on.
  [[nodiscard]] bool takes_snapshots() const { return snapshot_every > 0 || !resume.empty(); }

  /// Returns the snapshot that `resume` names, for a run whose snapshots lie in `folder`; see
  /// looptorch::choose_snapshot, whose errors it throws. Throws CommandLineError for `resume_changed` alone.
  [[nodiscard]] NewestSnapshot snapshot_to_resume(const std::filesystem::path& folder) const {
    if (resume_changed && resume.empty())
      throw CommandLineError("--resume-changed says how a run goes on: give --resume, too");
    return choose_snapshot(resume, folder);
  }

  /// Writes to stderr which snapshot was chosen and which were passed over; nothing without --resume.
  void print_resume(const NewestSnapshot& chosen) const {
    if (!resume.empty()) std::cerr << chosen.describe() << std::flush;
  }

  [[nodiscard]] std::uint64_t unsigned_seed() const { return static_cast<std::uint64_t>(seed); }

  /// Returns a seed beside the run's, for something that must not draw what the run draws.
  [[nodiscard]] std::uint64_t derived_seed(std::uint64_t number) const {
    return looptorch::derive_seed(unsigned_seed(), number);
  }

  /// Seeds LibTorch's random generators on all devices.
  void seed_generators() const { at::manual_seed(unsigned_seed()); }
};

/// Throws Interrupted if a signal or a time limit ended the fit; `run_main` turns it into the exit code.
inline void throw_if_interrupted(const FitResult& result) {
  if (result.status == FitStatus::interrupted) throw Interrupted(result.reason, result.steps);
}

}  // namespace looptorch::app
