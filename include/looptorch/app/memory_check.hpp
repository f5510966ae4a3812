// SPDX-License-Identifier: MIT
// What the flags --preflight and --memory do: dry steps before a run that end it where it would not fit, and
// what the peak of memory consisted of, for the summary.
//
//   app::check_memory(training, trainer, lt::SampleBatches(data, hardest));   // does nothing without
//   --preflight trainer.fit(...); app::set_memory(summary, trainer.policy<lt::WatchMemory>()); // nothing
//   without --memory
#pragma once

#include <looptorch/app/summary.hpp>
#include <looptorch/app/training_options.hpp>
#include <looptorch/base/error.hpp>
#include <looptorch/base/json/json.hpp>
#include <looptorch/memory/memory_breakdown.hpp>
#include <looptorch/memory/memory_phases.hpp>
#include <looptorch/preflight.hpp>

#include <cmath>
#include <cstdint>
#include <iostream>
#include <string>

namespace looptorch::app {

/// A run that a preflight found too large. `what()` is one sentence; the report went to stderr.
struct DoesNotFit : Error {
  using Error::Error;
};

/// With --preflight: makes dry steps on `hardest`, SampleBatches or a range of batches, and writes the
/// verdict to stderr. Throws DoesNotFit if the run does not leave a tenth of the memory free: of what the
/// device has free, or of
/// --memory-cap.
template <class Trainer, class Batches>
void check_memory(const TrainingOptions& options, Trainer& trainer, const Batches& hardest) {
  if (!options.preflight) return;
  constexpr double kGigabyte = 1e9;
  const auto report = preflight(trainer, hardest, {.cap = std::llround(options.memory_cap * kGigabyte)});
  std::cerr << "preflight: the run " << report.text() << std::flush;
  if (!report.fits)
    throw DoesNotFit(message("the run does not fit into ", looptorch::detail::bytes_text(report.cap),
                             ": see what would, above, or leave out --preflight"));
}

/// Adds the peak of a run by what it consisted of, in bytes, and its phase. Adds nothing if the memory was
/// not watched.
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
