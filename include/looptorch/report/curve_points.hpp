// SPDX-License-Identifier: MIT
// Collects the points of metrics' curves for report.html and compare.html. A long curve is thinned to the
// lowest, the highest and the first infinite or NaN point of each stretch, so that no spike is lost.
#pragma once

#include <looptorch/report/metric_row.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
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

/// A curve that is thinned as it grows. Has all points up to 6,000; later at least 3,000 stretches of equally
/// many points, and of each stretch what `thinned` keeps.
class GrowingCurve {
 public:
  void add(const CurvePoint& point) {
    if (in_last_ == 0) stretches_.emplace_back();
    stretches_.back().add(point);
    if (++in_last_ < length_) return;
    in_last_ = 0;
    if (stretches_.size() == kMost) join_pairs();
  }

  [[nodiscard]] std::vector<CurvePoint> points() const {
    std::vector<CurvePoint> points;
    for (const Stretch& stretch : stretches_)
      points.insert(points.end(), stretch.points.begin(), stretch.points.begin() + stretch.count);
    return points;
  }

 private:
  static constexpr std::size_t kMost = 6000;  // stretches; even

  struct Stretch {
    std::array<CurvePoint, 3> points = {};
    std::ptrdiff_t count = 0;

    void add(const CurvePoint& point) {
      std::vector<CurvePoint> all(points.begin(), points.begin() + count);
      all.push_back(point);
      all = thinned(all, points.size());
      std::copy(all.begin(), all.end(), points.begin());
      count = std::ssize(all);
    }
  };

  void join_pairs() {
    for (std::size_t i = 0; i < kMost / 2; ++i) {
      stretches_[i] = stretches_[2 * i];
      const Stretch& next = stretches_[2 * i + 1];
      for (std::ptrdiff_t k = 0; k < next.count; ++k)
        stretches_[i].add(next.points[static_cast<std::size_t>(k)]);
    }
    stretches_.resize(kMost / 2);
    length_ *= 2;
  }

  std::vector<Stretch> stretches_;
  std::int64_t length_ = 1;   // points of a stretch
  std::int64_t in_last_ = 0;  // points of the last stretch; 0 if it is full
};

}  // namespace looptorch::report
