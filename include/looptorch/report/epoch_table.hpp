// SPDX-License-Identifier: MIT
// Makes the table of epochs in report.html. For a metric of steps it has the mean over the epoch; for a
// published metric, such as a validation's, the last value.
#pragma once

#include <looptorch/report/known_metrics.hpp>
#include <looptorch/report/metric_lines.hpp>
#include <looptorch/report/metric_row.hpp>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace looptorch::report {

/// The figures of an epoch.
struct EpochFigures {
  std::int64_t epoch = 0;      ///< From 1.
  std::int64_t last_step = 0;  ///< The last step with a row.
  double seconds = 0;          ///< Time in training when it ended.
  std::map<MetricId, double> values = {};
};

/// True for metrics of which a table shows the last value: those with a dot in their name.
[[nodiscard]] inline bool is_published(const std::string& name) {
  return name.find('.') != std::string::npos;
}

/// True for metrics that a table of epochs has no column for.
[[nodiscard]] inline bool is_of_steps_only(const std::string& name) {
  return name.starts_with(kTimePrefix) || name == kStepSeconds || name == kSkipped;
}

/// Returns the figures of each epoch that has rows.
[[nodiscard]] inline std::vector<EpochFigures> epoch_table(const std::vector<MetricRow>& rows,
                                                           const MetricNames& names) {
  std::vector<EpochFigures> table;
  std::map<MetricId, std::int64_t> counts;
  for (const MetricRow& row : rows) {
    if (table.empty() || table.back().epoch != row.epoch + 1)
      table.push_back({row.epoch + 1}), counts.clear();
    EpochFigures& epoch = table.back();
    epoch.last_step = row.step, epoch.seconds = row.seconds;
    for (const auto& [id, value] : row.values) {
      if (is_of_steps_only(names[id])) continue;
      const auto count = static_cast<double>(++counts[id]);
      double& mean = epoch.values[id];
      mean = is_published(names[id]) ? value : mean + (value - mean) / count;
    }
  }
  return table;
}

}  // namespace looptorch::report
