// SPDX-License-Identifier: MIT
// Tracks which running means of losses and metrics the last window has changed. LogMetrics writes only these
// means into the window's row.
#pragma once

#include <looptorch/objective/running_mean.hpp>
#include <looptorch/report/metric_row.hpp>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace looptorch::detail {

/// A running mean, and the number of windows that it covered when the last window ended. If that number has
/// changed since, the current window has added to the mean.
struct TrackedMean {
  std::size_t update;
  std::string_view name;
  report::MetricId id;
  std::int64_t windows = 0;  ///< Number that the mean covered at the last call of `grew`.

  /// True if `mean` covers another number of windows than at the last call.
  [[nodiscard]] bool grew(const RunningMean& mean) {
    return std::exchange(windows, mean.windows()) != mean.windows();
  }
};

/// The means by update and name. A reference is valid until the next call.
class TrackedMeans {
 public:
  /// Returns the mean, a new one if it is not known, with the id that `make_id` returns.
  template <class MakeId>
  TrackedMean& of(std::size_t update, std::string_view name, const MakeId& make_id) {
    for (TrackedMean& mean : means_)
      if (mean.update == update && mean.name == name) return mean;
    names_.emplace_back(name);
    return means_.emplace_back(TrackedMean{update, names_.back(), make_id()});
  }
  /// Counts windows from the next epoch's beginning.
  void restart() {
    for (TrackedMean& mean : means_) mean.windows = 0;
  }
  void clear() { means_.clear(), names_.clear(); }

 private:
  std::vector<TrackedMean> means_;
  std::deque<std::string> names_;  // that TrackedMean::name views
};

}  // namespace looptorch::detail
