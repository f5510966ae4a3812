// SPDX-License-Identifier: MIT
// Prints before a training run what memory the device has and how much the run will hold. With --preflight it
// also makes dry steps, and ends a run that would not fit; the error names flags that would make it fit.
// After the run, `set_memory` adds the peak and its parts to the summary.
//
//   app::check_memory(training, trainer, [&] { return lt::SampleBatches(data, hardest); });
//   trainer.fit(...);
//   app::set_memory(summary, trainer.policy<lt::WatchMemory>());
#pragma once

#include <looptorch/app/flags/memory_flags.hpp>
#include <looptorch/app/summary.hpp>
#include <looptorch/app/training_options.hpp>
#include <looptorch/base/error.hpp>
#include <looptorch/base/json/json.hpp>
#include <looptorch/loop.hpp>
#include <looptorch/memory/held_memory.hpp>
#include <looptorch/memory/measure/memory_breakdown.hpp>
#include <looptorch/memory/measure/memory_counter.hpp>
#include <looptorch/memory/measure/memory_phases.hpp>
#include <looptorch/preflight.hpp>

#include <c10/core/Device.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iostream>
#include <optional>
#include <string>

namespace looptorch::app {

/// Thrown for a run that a preflight found too large. `what()` is one sentence; the report went to stderr.
struct DoesNotFit : Error {
  using Error::Error;
};

/// Returns bytes in words, such as "1.2 GB"; 1 GB is 1e9 bytes.
[[nodiscard]] inline std::string bytes_text(std::int64_t bytes) {
  return looptorch::detail::bytes_text(bytes);
}

/// Returns "memory: 24.1 GB of 25.3 GB to use on cpu; the run will hold 597 MB beside its activations:
/// weights 151 MB, ...". `usable` is the device's free memory, plus what the run already holds.
[[nodiscard]] inline std::string memory_line(at::Device device, const HeldMemory& held,
                                             const std::optional<MemoryCapacity>& usable) {
  const MemoryBreakdown parts{.weights = held.weights,
                              .gradients = held.gradients,
                              .optimizer = held.optimizer,
                              .averages = held.averages,
                              .other = held.copies};
  const std::string has = usable ? message(bytes_text(usable->available), " of ", bytes_text(usable->total),
                                           " to use on ", device, "; ")
                                 : "";
  const bool too_much = usable && parts.total() > usable->available;
  return message("memory: ", has, "the run will hold ", bytes_text(parts.total()),
                 " beside its activations: ", describe(parts),
                 too_much ? "; that is more than there is" : "");
}

/// Writes memory_line for a run to stderr.
template <class Trainer>
void print_memory(Trainer& trainer) {
  const HeldMemory expected = trainer.expected_memory();
  const at::Device device = looptorch::detail::TrainerAccess::engine(trainer).run().device();
  auto usable = memory_capacity(device);
  if (usable)  // a MemoryCounter of a CPU would begin to count, which costs time
    usable->available += device.is_cpu() ? expected.weights : MemoryCounter(device).read().reserved;
  std::cerr << memory_line(device, expected, usable) << std::endl;
}

/// Returns the report of a preflight with --memory-cap, and writes it to stderr.
template <class Trainer, class Batches>
[[nodiscard]] PreflightReport run_preflight(const TrainingOptions& options, Trainer& trainer,
                                            Batches&& hardest, PreflightOptions how) {
  constexpr double kGigabyte = 1e9;
  how.cap = std::llround(options.memory_cap * kGigabyte);
  auto report = preflight(trainer, hardest, how);
  std::cerr << "preflight: the run " << report.text() << std::flush;
  return report;
}

/// Throws DoesNotFit for a run that does not fit into `cap` bytes. `flags` make it fit; empty if none do.
[[noreturn]] inline void throw_does_not_fit(std::int64_t cap, const std::string& flags) {
  throw DoesNotFit(message("the run does not fit into ", bytes_text(cap), ": ",
                           flags.empty() ? "nothing that was tried would, so that it takes a smaller model "
                                           "or shorter inputs"
                                         : "give " + flags,
                           ", or leave out --preflight"));
}

/// Returns `flags`, with --bf16 advised instead of a given --fp32: a command line takes one precision.
[[nodiscard]] inline MemoryFlags beside_given(MemoryFlags flags, const TrainingOptions& options) {
  if (options.fp32_given && !flags.bf16.empty()) flags.bf16 += " (instead of --fp32)";
  return flags;
}

/// Writes a line on memory to stderr. With --preflight: makes dry steps on the batches that `hardest()`
/// returns, SampleBatches or a range of batches, and writes the verdict to stderr. Throws DoesNotFit if the
/// run does not leave a tenth of the memory free: of what the device has free, or of --memory-cap. The error
/// names the first of `flags` that was tried and fits.
template <class Trainer, class Hardest>
void check_memory(const TrainingOptions& options, Trainer& trainer, const Hardest& hardest,
                  const MemoryFlags& flags = {}) {
  print_memory(trainer);
  if (!options.preflight) return;
  const auto report =
      run_preflight(options, trainer, hardest(), {.remedies = beside_given(flags, options).remedies()});
  if (report.fits) return;
  const auto fitting = std::find_if(report.tried.begin(), report.tried.end(),
                                    [](const PreflightTrial& trial) { return trial.fits; });
  throw_does_not_fit(report.cap, fitting == report.tried.end() ? std::string() : fitting->change);
}

/// Adds a run's peak memory in bytes, its parts and its phase. Adds nothing if the memory was not watched.
template <class Watch>
void set_memory(Summary& summary, const Watch& watched) {
  if (watched.peak().bytes == 0) return;
  Json parts = Json::object();
  for (const auto& [name, bytes] : watched.breakdown().parts()) parts.set(name, bytes);
  summary.set("memory_peak", watched.peak().bytes)
      .set("memory_phase", std::string(to_string(watched.peak().phase)));
  summary.set("memory", std::move(parts));
}

}  // namespace looptorch::app
