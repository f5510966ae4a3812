// SPDX-License-Identifier: MIT
// The result of a preflight: whether a run fits, what it needs, and which changes would make it fit.
#pragma once

#include <looptorch/memory/measure/memory_breakdown.hpp>
#include <looptorch/memory/measure/memory_phases.hpp>
#include <looptorch/preflight/remedies.hpp>

#include <c10/core/Device.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace looptorch {

/// How a preflight measures, and its limits.
struct PreflightOptions {
  /// Bytes that the run may take. 0: the device's free memory plus what this process holds. On a CPU the dry
  /// steps are limited to it (HostMemory).
  std::int64_t cap = 0;
  double margin = 0.1;  ///< The fraction of the cap that must stay free, from 0 to below 1.
  /// Ends the dry steps after a micro-batch with which the run needs more bytes than this. `needed` is then a
  /// lower bound. 0: runs them all.
  std::int64_t stop_beyond = 0;
  bool evaluate = true;             ///< Evaluates the batches, too.
  bool try_remedies = true;         ///< Tries what would fit, if the run does not.
  PreflightRemedies remedies = {};  ///< Savings to try, by their names in the report.
};

/// A change of the run that was tried.
struct PreflightTrial {
  std::string change;       ///< The policies or flags to use.
  std::int64_t needed = 0;  ///< Bytes at the peak, or until memory ran out.
  bool out_of_memory = false;
  bool fits = false;
  std::string error = {};  ///< Why the run then fails, as BatchNorm on one sample; empty if it does not.
};

/// The verdict of a preflight, the measured peak and its parts, and the changes tried. Sizes are in bytes.
struct PreflightReport {
  c10::Device device = c10::kCPU;
  bool fits = false;
  bool out_of_memory = false;  ///< The dry steps ran out of memory; the peak is what they reached.
  bool stopped = false;     ///< They ended early (PreflightOptions::stop_beyond); the peak is a lower bound.
  std::int64_t needed = 0;  ///< Bytes at the peak, as the device's allocator holds them.
  std::int64_t cap = 0;
  double margin = 0;
  MemoryPhases phases;        ///< Peaks by phase.
  MemoryBreakdown parts;      ///< Parts of the peak of tensors, which add up to it.
  std::int64_t snapshot = 0;  ///< Bytes of `needed` besides tensors: on a CPU, a snapshot's copy of the run.
  std::vector<PreflightTrial> tried;

  /// Returns the bytes of a cap that a run may take, less the margin.
  [[nodiscard]] static std::int64_t allowed(std::int64_t cap, double margin) {
    return std::llround(static_cast<double>(cap) * (1 - margin));
  }

  /// Returns the verdict with the peak's parts, a line for each change that fits, and one with those that do
  /// not.
  [[nodiscard]] std::string text() const {
    using detail::bytes_text;
    const std::string percent = std::to_string(std::lround(100 * margin)) + " %";
    std::string text = fits ? "fits: " : "does not fit: ";
    text += out_of_memory ? "memory ran out at " : "needs ";
    text += bytes_text(needed) + " of " + bytes_text(cap) + ", with " + percent + " to stay free, in " +
            std::string(to_string(phases.peak().phase)) + ": " + describe(parts) +
            (snapshot > 0 ? ", snapshot " + bytes_text(snapshot) : "") + "\n";
    std::string in_vain;
    for (const PreflightTrial& trial : tried) {
      if (trial.fits)
        text += "  fits (" + outcome(trial) + "): " + trial.change + "\n";
      else
        in_vain += (in_vain.empty() ? "" : "; ") + trial.change + " (" + outcome(trial) + ")";
    }
    return in_vain.empty() ? text : text + "  tried, and does not fit: " + in_vain + "\n";
  }

 private:
  [[nodiscard]] static std::string outcome(const PreflightTrial& trial) {
    if (!trial.error.empty()) return "cannot run: " + trial.error;
    return trial.out_of_memory ? "memory ran out" : detail::bytes_text(trial.needed);
  }
};

}  // namespace looptorch
