// SPDX-License-Identifier: MIT
// Reads and removes the summary.json that an earlier start of a training program left in its output folder. A
// program that resumes a finished run trains no step, so it reports the time and memory of the earlier start:
//
//   const app::EarlierSummary earlier(options.output / "summary.json");
//   save(model);
//   summary.set("seconds", stopwatch.seconds()).set("peak_bytes", app::peak_bytes(device));
//   for (const auto& [name, cost] : earlier.costs_after(result)) summary.set(name, cost);
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/json/json.hpp>
#include <looptorch/loop/fit.hpp>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace looptorch::app {

/// The contents of a summary file. The file itself is removed, since a folder with a summary holds a
/// finished model.
class EarlierSummary {
 public:
  /// Reads and removes `file`. An absent or damaged summary is empty.
  explicit EarlierSummary(const std::filesystem::path& file) {
    std::error_code ignored;
    if (!std::filesystem::exists(file, ignored)) return;
    try {
      figures_ = load_json(file);
    } catch (const Error&) {  // cut off, or no JSON
    }
    std::filesystem::remove(file, ignored);
  }

  /// Returns the earlier time, memory and FLOPs, by the summary's names, if `fit` resumed a run without
  /// training a step and the earlier summary has as many steps; else nothing.
  [[nodiscard]] std::vector<std::pair<std::string, Json>> costs_after(const FitResult& fit) const {
    std::vector<std::pair<std::string, Json>> costs;
    if (!fit.resumed || fit.resumed->step != fit.steps || !is_of(fit.steps)) return costs;
    for (const char* name :
         {"memory_peak", "memory_phase", "memory", "seconds", "peak_bytes", "flops_per_second", "mfu"})
      if (figures_->contains(name)) costs.emplace_back(name, figures_->at(name));
    return costs;
  }

 private:
  [[nodiscard]] bool is_of(std::int64_t steps) const {
    return figures_ && figures_->is_object() && figures_->get("steps", Json()) == Json(steps);
  }

  std::optional<Json> figures_;
};

/// Throws UsageError if `file` is the summary of a run whose result a rehearsal would replace.
inline void require_no_result(const std::filesystem::path& file) {
  std::error_code ignored;
  if (!std::filesystem::exists(file, ignored)) return;
  try {
    if (load_json(file).get("rehearsal", false) == Json(true)) return;
  } catch (const Error&) {  // cut off, or no JSON
  }
  throw UsageError(message(
      "--quick: ", file.parent_path().string(),
      " holds the result of a run, which the rehearsal would replace: choose another folder for its output"));
}

}  // namespace looptorch::app
