// SPDX-License-Identifier: MIT
// The summary that an earlier call of a training program wrote. A call that resumes a finished run trains
// nothing, so only that summary has the run's costs.
//
//   const app::EarlierSummary earlier(options.output / "summary.json");
//   save(model);
//   summary.set("seconds", stopwatch.seconds()).set("peak_bytes", app::peak_bytes(device));
//   earlier.keep_costs(summary, result);
#pragma once

#include <looptorch/app/summary.hpp>
#include <looptorch/base/error.hpp>
#include <looptorch/base/json/json.hpp>
#include <looptorch/loop/fit.hpp>

#include <cstdint>
#include <filesystem>
#include <optional>

namespace looptorch::app {

/// What a summary file held, which is removed: a folder with a summary holds a finished model.
class EarlierSummary {
 public:
  /// Reads and removes `file`. An absent or damaged summary is empty.
  explicit EarlierSummary(const std::filesystem::path& file) {
    if (!std::filesystem::exists(file)) return;
    try {
      figures_ = load_json(file);
    } catch (const Error&) {  // cut off, or no JSON
    }
    std::filesystem::remove(file);
  }

  /// Replaces time and memory in `summary` by the earlier ones, if `fit` resumed a run without training a
  /// step and the earlier summary has as many steps.
  void keep_costs(Summary& summary, const FitResult& fit) const {
    if (!fit.resumed || fit.resumed->step != fit.steps || !is_of(fit.steps)) return;
    for (const char* name :
         {"memory_peak", "memory_phase", "memory", "seconds", "peak_bytes", "operations_per_second", "mfu"})
      if (figures_->contains(name)) summary.set(name, figures_->at(name));
  }

 private:
  [[nodiscard]] bool is_of(std::int64_t steps) const {
    return figures_ && figures_->is_object() && figures_->get("steps", Json()) == Json(steps);
  }

  std::optional<Json> figures_;
};

}  // namespace looptorch::app
