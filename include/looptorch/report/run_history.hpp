// SPDX-License-Identifier: MIT
// Keeps what a report's page shows of a run's metrics: the curve and the sum of each metric, and the figures
// of each epoch. Its memory grows with the number of metrics and of epochs, not with the number of steps.
#pragma once

#include <looptorch/report/curve_points.hpp>
#include <looptorch/report/known_metrics.hpp>
#include <looptorch/report/metric_lines.hpp>
#include <looptorch/report/metric_row.hpp>

#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
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

/// The values of one metric: their curve, sum and number.
struct MetricHistory {
  GrowingCurve curve = {};
  double sum = 0;          ///< Sum of its values.
  std::int64_t count = 0;  ///< Number of its values.
  CurvePoint last = {};
  std::optional<CurvePoint> first_non_finite = {};
};

/// True for metrics with a dot in their name, of which an epoch's figure is the last value, not a mean.
[[nodiscard]] inline bool is_published(const std::string& name) {
  return name.find('.') != std::string::npos;
}

/// True for metrics that a table of epochs has no column for.
[[nodiscard]] inline bool is_of_steps_only(const std::string& name) {
  return name.starts_with(kTimePrefix) || name == kStepSeconds || name == kSkipped;
}

/// The history of a run, to which rows are added in order.
class RunHistory {
 public:
  RunHistory() = default;
  RunHistory(const std::vector<MetricRow>& rows, const MetricNames& names) {
    for (const MetricRow& row : rows) add(row, names);
  }

  void add(const MetricRow& row, const MetricNames& names) {
    if (metrics_.size() < names.size()) metrics_.resize(names.size());
    if (epochs_.empty() || epochs_.back().epoch != row.epoch + 1)
      epochs_.push_back({row.epoch + 1}), of_epoch_.clear();
    EpochFigures& epoch = epochs_.back();
    epoch.last_step = row.step, epoch.seconds = row.seconds;
    for (const auto& [id, value] : row.values) {
      add({row.step, value}, metrics_[id]);
      if (is_of_steps_only(names[id])) continue;
      const auto count = static_cast<double>(++of_epoch_[id]);
      double& mean = epoch.values[id];
      mean = is_published(names[id]) ? value : mean + (value - mean) / count;
    }
  }

  [[nodiscard]] bool is_empty() const { return epochs_.empty(); }
  /// Returns the last row's step; 0 without rows.
  [[nodiscard]] std::int64_t last_step() const { return is_empty() ? 0 : epochs_.back().last_step; }
  /// Returns the time in training up to the last row.
  [[nodiscard]] double seconds() const { return is_empty() ? 0 : epochs_.back().seconds; }
  /// Returns the figures of each epoch that has rows.
  [[nodiscard]] const std::vector<EpochFigures>& epochs() const { return epochs_; }
  /// Returns the metrics by their ids. Metrics without a value yet may be missing at the end.
  [[nodiscard]] const std::vector<MetricHistory>& metrics() const { return metrics_; }

 private:
  static void add(const CurvePoint& point, MetricHistory& metric) {
    metric.curve.add(point);
    metric.sum += point.second, ++metric.count;
    metric.last = point;
    if (!std::isfinite(point.second) && !metric.first_non_finite) metric.first_non_finite = point;
  }

  std::vector<MetricHistory> metrics_;
  std::vector<EpochFigures> epochs_;
  std::map<MetricId, std::int64_t> of_epoch_;  // numbers of values in the current epoch
};

}  // namespace looptorch::report
