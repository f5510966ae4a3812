// SPDX-License-Identifier: MIT
// Checks before a run whether it fits into memory. Runs whole steps, with moments, averages and an
// evaluation, and then restores everything. Give it the batches that need the most memory; `hard_batches`
// finds them. If the run does not fit, tries changes that save memory, and reports which of them help.
//
//   const auto report = preflight(trainer, hardest_batches);
//   if (!report.fits) std::fputs(report.text().c_str(), stderr);
#pragma once

#include <looptorch/preflight/hard_batches.hpp>
#include <looptorch/preflight/preflight_report.hpp>
#include <looptorch/preflight/remedy_search.hpp>
#include <looptorch/preflight/sample_batches.hpp>

#include <cstdint>
#include <type_traits>
#include <vector>

namespace looptorch {

/// Checks whether a run of `trainer` fits, by dry steps on `batches`, the greatest that fit will meet: a
/// range of batches like fit's, or SampleBatches of a dataset. Smaller micro-batches are views of a range's
/// batches; a batch type with fields other than tensors needs SampleBatches. Leaves weights, moments,
/// averages, policies, counters, random generators and flags as they are, bit for bit, except buffers
/// that forward registers or resizes; drops gradients, as fit does. Policies that declare `leader_only` are
/// not called, and no policy's hooks of windows and epochs run. Trains all layers that UnfreezeAt unfreezes
/// in any epoch. Adds averages that begin later, RestoreBest's copy and, on a CPU, a snapshot's. Needs host
/// memory for a copy of the run. Throws UsageError for empty batches or options out of range, and what the
/// objective throws; running out of memory is a result.
template <class Trainer, class Batches>
[[nodiscard]] PreflightReport preflight(Trainer& trainer, Batches&& batches,
                                        const PreflightOptions& options = {}) {
  if constexpr (detail::CheckDrySteps<Trainer, std::remove_reference_t<Batches>>::passed) {
    const auto call = detail::TrainerAccess::call(trainer).begin("preflight()");
    return detail::make_preflight(trainer, batches, options).run();
  } else {
    return {};
  }
}

/// The largest micro-batch that fits.
struct MicroBatch {
  std::int64_t size = 0;        ///< Samples; 0 if not even one fits.
  std::int64_t accumulate = 0;  ///< Micro-batches in the given window.
  std::vector<PreflightTrial> tried;
};

/// Finds the largest micro-batch that fits, by dry steps as in `preflight`. Keeps the samples of a window,
/// and so what is learnt: tries only their divisors up to the given batches' size, that size first, then by
/// bisection. Give the whole window as one batch if it may fit: without accumulation no gradients exist
/// during forward, so it can need less than two halves. Returns 0 if not even one sample fits.
template <class Trainer, class Batches>
[[nodiscard]] MicroBatch find_micro_batch(Trainer& trainer, Batches&& batches,
                                          const PreflightOptions& options = {}) {
  MicroBatch found;
  if constexpr (detail::CheckDrySteps<Trainer, std::remove_reference_t<Batches>>::passed) {
    const auto call = detail::TrainerAccess::call(trainer).begin("find_micro_batch()");
    auto preflight = detail::make_preflight(trainer, batches, options);
    auto& trials = preflight.trials();
    found.size = trials.largest_micro_batch(found.tried).value_or(0);
    if (found.size > 0) found.accumulate = trials.window_samples() / found.size;
  }
  return found;
}

}  // namespace looptorch
