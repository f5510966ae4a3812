// SPDX-License-Identifier: MIT
// Holds the standard settings of a training program, and derives from them what the library needs: a device,
// FitOptions, LoaderOptions, and the snapshot to resume from. training_flags.hpp adds their flags to a
// command line.
#pragma once

#include <looptorch/app/device.hpp>
#include <looptorch/app/device/device_defaults.hpp>
#include <looptorch/app/flags/flag_values.hpp>
#include <looptorch/app/ranks.hpp>
#include <looptorch/app/run_main.hpp>
#include <looptorch/base/random.hpp>
#include <looptorch/data/loader/loader_options.hpp>
#include <looptorch/loop/compose/policy_stack.hpp>
#include <looptorch/loop/fit.hpp>
#include <looptorch/policies/autocast.hpp>
#include <looptorch/policies/autopsy.hpp>
#include <looptorch/state/snapshot/choose_snapshot.hpp>

#include <ATen/Context.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <iostream>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace looptorch::app {

/// The type in which matmuls and convolutions of a forward pass are computed. Weights stay fp32.
enum class Precision {
  fp32,
  bf16,
  fp16,
  mixed,  ///< fp16 on an accelerator, bf16 on a CPU
};

/// The standard settings of a training program. A program writes its own defaults into the fields and hands
/// single ones to policies: `Accumulate<>{options.gradient_accumulation}`.
struct TrainingOptions {
  // ---- How long and how fast ----
  std::int64_t epochs = 1;
  std::int64_t max_steps = 0;   ///< 0: the epochs alone decide
  bool quick = false;           ///< a rehearsal: one epoch of few_batches(), and as few of the rest
  std::int64_t batch_size = 8;  ///< samples in one forward pass
  std::int64_t gradient_accumulation = 1;  ///< batches in one step
  double learning_rate = 1e-4;
  std::int64_t warmup_steps = 0;  ///< steps from rate 0 to the full rate

  // ---- Precision and speed ----
  Precision precision = Precision::fp32;
  bool fp32_given = false;        ///< --fp32 was given; advice to use --bf16 then says "instead of --fp32"
  std::optional<bool> tf32 = {};  ///< for BackendFlags; empty: as LibTorch has it
  std::optional<bool> cudnn_benchmark = {};  ///< likewise
  bool capture = false;                      ///< micro-batches run as CUDA graphs, for CaptureGraphs

  // ---- Memory ----
  bool gradient_checkpointing = false;
  std::int64_t flush_every = 0;  ///< micro-batches, for CacheFlushEvery; 0: never
  bool retry_on_oom = false;     ///< reruns windows in smaller pieces when memory runs out (RetryOnOom)
  bool memory = false;           ///< watch it (WatchMemory)
  std::filesystem::path memory_snapshot = {};  ///< file of the allocator's record (MemorySnapshot)
  bool preflight = false;                      ///< dry steps first, which end a run that would not fit
  double memory_cap = 0;                       ///< GB that a preflight allows; 0: what the device has free

  // ---- Device and data ----
  std::string device = "auto";                ///< for choose_device
  std::int64_t workers = 2;                   ///< threads of each loader
  std::int64_t seed = 1;                      ///< of all random numbers
  std::optional<std::int64_t> prefetch = {};  ///< finished batches that may wait; empty: the loader's number
  std::filesystem::path cache = {};           ///< folder of decoded samples; empty: the program's choice
  std::string on_bad_audio = "skip";          ///< or "stop", without --on-bad-audio

  // ---- Snapshots and resuming ----
  std::int64_t snapshot_every = 0;  ///< steps; 0: none but those that the program takes anyway
  std::string resume = {};          ///< "", "auto", or a snapshot or a folder of them
  bool resume_changed = false;      ///< resumes with other settings than the snapshot's

  // ---- Report and search for faults ----
  bool report = true;        ///< write the run's metrics and report.html (run_log)
  bool histograms = false;   ///< the report has distributions of parameters
  bool autopsy = false;      ///< traces windows whose loss or gradients are not finite (autopsy_policy)
  std::string replay = {};   ///< a window that autopsy kept, or a folder of them, which app::fit replays
  std::string profile = {};  ///< steps to trace, as in "10-15" or "12", for profile_policy; empty: none

  // ---- Set by parsing ----
  std::string program = {};  ///< the program's name, for run_log
  std::string config = {};   ///< all flags as a file for --config
  /// All flags with their values, for run_log.
  std::vector<std::pair<std::string, std::string>> settings = {};
  /// A sentence on the flags that the device turned on by default (device_defaults); a Session prints it.
  std::string on_by_default = {};

  /// Returns the device that `device` names, and writes to stderr which settings have no effect on it. Of
  /// several ranks on a machine, each takes an accelerator of its own, unless `device` has a number. Throws
  /// what app::choose_device throws, CommandLineError for settings that the device or each other exclude, and
  /// UsageError for several ranks in a program that cannot connect them.
  [[nodiscard]] at::Device choose_device() const {
    require_ranks_connect();
    const at::Device chosen = device_of_rank();
    check_precision(chosen);
    check_data_and_memory();
    print_settings_without_effect(chosen);
    return chosen;
  }

  /// Returns what is known about the device that `device` names; nothing if it cannot be used; choose_device
  /// then says why.
  [[nodiscard]] DeviceFacts device_facts() const {
    try {
      return facts_of(device_of_rank(), std::thread::hardware_concurrency(), rank_environment());
    } catch (const std::exception&) {
      return {};
    }
  }

  /// True if the forward pass is computed in 16 bits where that is safe.
  [[nodiscard]] bool mixed_precision() const { return precision != Precision::fp32; }
  /// Returns the 16-bit type for Autocast<>; empty if the device decides.
  [[nodiscard]] std::optional<at::ScalarType> autocast_type() const {
    if (precision == Precision::fp16) return fp16::kType;
    if (precision == Precision::bf16) return bf16::kType;
    return std::nullopt;
  }

  /// Returns the number of batches in each part of a rehearsal: at least a whole step's.
  [[nodiscard]] std::int64_t few_batches() const { return std::max(kFewBatches, gradient_accumulation); }
  [[nodiscard]] std::size_t few_samples() const {
    return static_cast<std::size_t>(few_batches() * batch_size);
  }
  /// With `quick`, shortens a list to few_samples(), so that work before the fit is quick, too.
  template <class Sample>
  void keep_few(std::vector<Sample>& samples) const {
    if (quick) samples.resize(std::min(samples.size(), few_samples()));
  }

  /// Returns epochs, max_steps, the snapshot to resume from, whether settings may differ from its own, and
  /// the length of a rehearsal. An empty snapshot starts a new run. A resumed run says so on stderr.
  [[nodiscard]] FitOptions fit_options(ResumeFrom snapshot = {}) const {
    return {.epochs = quick ? 1 : epochs,
            .max_steps = max_steps > 0 ? std::optional(max_steps) : std::nullopt,
            .resume = std::move(snapshot),
            .resume_changed = resume_changed,
            .on_resumed =
                [](const ResumeReport& from) {
                  std::cerr << "resumes from " << from.snapshot.string() << std::endl;
                },
            .limit_batches = quick ? std::optional(few_batches()) : std::nullopt};
  }

  /// Returns batch size, workers, prefetch, seed, and whether samples that cannot be used are skipped.
  [[nodiscard]] LoaderOptions loader_options() const {
    return {.batch_size = batch_size,
            .workers = workers,
            .prefetch = prefetch.value_or(LoaderOptions{}.prefetch),
            .seed = unsigned_seed(),
            .on_error = skips_bad_audio() ? OnError::skip : OnError::fail};
  }

  [[nodiscard]] bool skips_bad_audio() const { return on_bad_audio == "skip"; }

  /// Returns the policy for `--autopsy`, which keeps windows in the folder `bad-windows` of `output`.
  [[nodiscard]] When<Autopsy> autopsy_policy(const std::filesystem::path& output) const {
    return {autopsy, Autopsy{.folder = output / "bad-windows"}};
  }

  /// Returns the first and the last step that `profile` names; nothing if it is empty. Throws
  /// CommandLineError if the text names no steps.
  [[nodiscard]] std::optional<std::pair<std::int64_t, std::int64_t>> profiled_steps() const {
    if (profile.empty()) return std::nullopt;
    const auto dash = profile.find('-');
    try {
      const auto first = parse_number<std::int64_t>(profile.substr(0, dash), {.min = 1});
      if (dash == profile.npos) return std::pair(first, first);
      return std::pair(
          first, parse_number<std::int64_t>(profile.substr(dash + 1), {.min = static_cast<double>(first)}));
    } catch (const CommandLineError& error) {
      throw CommandLineError(
          message("--profile takes the first and the last step, as in 10-15, or one: ", error.what()));
    }
  }

  /// True if snapshots are asked for, or the run is resumed from one.
  [[nodiscard]] bool takes_snapshots() const { return snapshot_every > 0 || !resume.empty(); }

  /// Reads the snapshot that `resume` names, for a run with its snapshots in `folder`, and holds it for the
  /// fit unless `preflight` comes first; see looptorch::choose_snapshot, whose errors it throws. Returns none
  /// with `replay`. Throws CommandLineError for `resume_changed` without `resume`, and for `quick` with it.
  [[nodiscard]] NewestSnapshot snapshot_to_resume(const std::filesystem::path& folder) const {
    if (!replay.empty()) return {};
    if (resume_changed && resume.empty())
      throw CommandLineError("--resume-changed says how a run goes on: give --resume, too");
    if (quick && !resume.empty())
      throw CommandLineError("--quick rehearses a run from its beginning: leave --resume away");
    const NewestSnapshot chosen = choose_snapshot(resume, folder);
    if (preflight) chosen.release();  // dry steps need the memory
    return chosen;
  }

  /// Writes to stderr which snapshots were skipped, or that there is none; nothing without --resume, and with
  /// --replay, which resumes nothing.
  void print_resume(const NewestSnapshot& chosen) const {
    if (!resume.empty() && replay.empty()) std::cerr << chosen.describe() << std::flush;
  }

  [[nodiscard]] std::uint64_t unsigned_seed() const { return static_cast<std::uint64_t>(seed); }

  /// Returns a seed derived from the run's, for draws that must differ from the run's.
  [[nodiscard]] std::uint64_t derived_seed(std::uint64_t number) const {
    return looptorch::derive_seed(unsigned_seed(), number);
  }

  /// Seeds LibTorch's random generators on all devices; each rank draws other numbers.
  void seed_generators() const {
    const auto rank = static_cast<std::uint64_t>(rank_environment().rank);
    at::manual_seed(rank == 0 ? unsigned_seed() : looptorch::derive_seed(derived_seed(kSeedOfRanks), rank));
  }

 private:
  static constexpr std::int64_t kFewBatches = 3;
  static constexpr std::uint64_t kSeedOfRanks = 1000;  // what a seed is derived for, beside the programs' own

  void check_precision(at::Device chosen) const {
    if (precision == Precision::fp16 && chosen.is_cpu())
      throw CommandLineError(
          "--fp16 needs an accelerator, since CPUs compute fp16 slowly or not at all: give --bf16 or "
          "--mixed-precision");
    if (const std::string why = precision == Precision::bf16 ? why_no_bf16(chosen) : ""; !why.empty())
      throw CommandLineError(message("--bf16: ", why, ": give --fp16"));
  }
  void check_data_and_memory() const {
    if (prefetch.value_or(0) > 0 && workers == 0)
      throw CommandLineError(
          message("--prefetch ", *prefetch, " needs threads that read ahead: give --workers 1 or more"));
    if (memory_cap > 0 && !preflight)
      throw CommandLineError("--memory-cap is what --preflight allows: give --preflight, too");
  }
  void print_settings_without_effect(at::Device chosen) const {
    if (capture && chosen.is_cpu())
      std::cerr << "--capture has no effect on a CPU, which has no graphs" << std::endl;
    const bool both = tf32 && cudnn_benchmark;
    if (!chosen.is_cuda() && (tf32 || cudnn_benchmark))
      std::cerr << (tf32 ? "--tf32" : "") << (both ? " and " : "")
                << (cudnn_benchmark ? "--cudnn-benchmark" : "") << (both ? " have" : " has")
                << " no effect on " << chosen << ", only on CUDA devices" << std::endl;
  }

  [[nodiscard]] at::Device device_of_rank() const {
    const at::Device chosen = app::choose_device(device);
    const RankEnvironment here = rank_environment();
    if (here.size == 1 || chosen.is_cpu() || device.find(':') != std::string::npos) return chosen;
    return app::choose_device(
        message(c10::DeviceTypeName(chosen.type(), /*lower_case=*/true), ":", here.local_rank));
  }
};

/// Throws Interrupted if a signal or a time limit ended the fit; `run_main` turns it into the exit code.
inline void throw_if_interrupted(const FitResult& result) {
  if (result.status == FitStatus::interrupted) throw Interrupted(result.reason, result.signal, result.steps);
}

}  // namespace looptorch::app
