// SPDX-License-Identifier: MIT
// Collects the points of each metric's curve for report.html and compare.html. A long curve is thinned to the
// lowest and the highest point of each stretch, so that no spike is lost.
#pragma once

#include <looptorch/report/metric_lines.hpp>
#include <looptorch/report/metric_row.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace looptorch::report {

/// A step and a value, which may be NaN or infinite.
using CurvePoint = std::pair<std::int64_t, double>;

/// Returns a metric's points, in the rows' order.
[[nodiscard]] inline std::vector<CurvePoint> curve_points(const std::vector<MetricRow>& rows, MetricId id) {
  std::vector<CurvePoint> points;
  for (const MetricRow& row : rows)
    for (const auto& [metric, value] : row.values)
      if (metric == id) points.emplace_back(row.step, value);
  return points;
}

/// A metric's name, a view of MetricNames, and its points.
struct Curve {
  std::string_view name;
  std::vector<CurvePoint> points = {};
};

/// Returns all metrics' curves, by id, in one pass over the rows.
[[nodiscard]] inline std::vector<Curve> curves_of(const std::vector<MetricRow>& rows,
                                                  const MetricNames& names) {
  std::vector<Curve> curves;
  for (MetricId id = 0; id < names.size(); ++id) curves.push_back({names[id]});
  for (const MetricRow& row : rows)
    for (const auto& [id, value] : row.values) curves[id].points.emplace_back(row.step, value);
  return curves;
}

/// Returns `points` if they are at most `most`, else about as many of them: of each stretch the lowest, the
/// highest, and the first NaN or infinity.
[[nodiscard]] inline std::vector<CurvePoint> thinned(const std::vector<CurvePoint>& points,
                                                     std::size_t most) {
  if (points.size() <= most) return points;
  const std::size_t stretches = std::max<std::size_t>(most / 3, 1);
  std::vector<CurvePoint> kept;
  for (std::size_t i = 0; i < stretches; ++i) {
    const std::size_t begin = i * points.size() / stretches, end = (i + 1) * points.size() / stretches;
    std::size_t low = end, high = end, none = end;
    for (std::size_t at = begin; at < end; ++at) {
      const double value = points[at].second;
      if (!std::isfinite(value)) {
        none = std::min(none, at);
        continue;
      }
      if (low == end || value < points[low].second) low = at;
      if (high == end || value > points[high].second) high = at;
    }
    std::vector<std::size_t> chosen = {low, high, none};
    std::sort(chosen.begin(), chosen.end());
    chosen.erase(std::unique(chosen.begin(), chosen.end()), chosen.end());
    for (const std::size_t at : chosen)
      if (at < end) kept.push_back(points[at]);
  }
  return kept;
}

}  // namespace looptorch::report
