// SPDX-License-Identifier: MIT
// Defines MetricRow, the metrics of one step, and UnreadRow, a row of which some numbers are still on a
// device. The training thread makes UnreadRows; the thread that writes metrics converts them to MetricRows.
#pragma once

#include <looptorch/report/arriving_numbers.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace looptorch::report {

/// A metric's index in the list of names.
using MetricId = std::uint32_t;

/// The metrics of one step.
struct MetricRow {
  std::int64_t step = 0;   ///< Windows finished.
  std::int64_t epoch = 0;  ///< Epochs finished before this step.
  double seconds = 0;      ///< Time in training since the run began, earlier processes included.
  std::vector<std::pair<MetricId, double>> values = {};
};

/// A number that may lie on a device. Its sum is `number`, plus the slot `now`, minus the slot `before`, once
/// these have arrived; its weight likewise. The value is sum / weight.
struct UnreadValue {
  static constexpr std::int32_t kNone = -1;

  MetricId id = 0;
  double number = 0, weight = 1;
  std::int32_t now = kNone, before = kNone;  ///< Slots of the sum.
  std::int32_t weight_now = kNone, weight_before = kNone;

  [[nodiscard]] bool is_known() const { return now == kNone && weight_now == kNone; }
  /// Returns the sum and the weight, once the numbers in `slots` have arrived.
  template <class Slots>
  [[nodiscard]] std::pair<double, double> read(const Slots& slots) const {
    const auto at = [&](std::int32_t slot) {
      return slot == kNone ? 0.0 : slots[static_cast<std::size_t>(slot)];
    };
    return {number + at(now) - at(before), weight + at(weight_now) - at(weight_before)};
  }
};

/// A row with numbers that may be on a device.
struct UnreadRow {
  std::int64_t step = 0, epoch = 0;
  double seconds = 0;
  std::vector<UnreadValue> values = {};
};

/// Rows on their way to the thread that writes them.
struct RowBatch {
  std::vector<std::string> new_names = {};  ///< Names whose ids follow those of earlier batches.
  std::vector<UnreadRow> rows = {};
  std::shared_ptr<ArrivingNumbers> slots = {};  ///< Null where all numbers are known.
};

/// Returns a row's numbers. The last of several values of one metric counts; a mean over nothing is skipped.
/// Call it when the batch's numbers have arrived.
[[nodiscard]] inline MetricRow read_row(const UnreadRow& unread, const ArrivingNumbers* slots) {
  MetricRow row{unread.step, unread.epoch, unread.seconds};
  row.values.reserve(unread.values.size());
  for (const UnreadValue& value : unread.values) {
    const auto [sum, weight] = value.is_known() ? std::pair(value.number, value.weight) : value.read(*slots);
    if (weight == 0) continue;
    const auto same = [&](const auto& other) { return other.first == value.id; };
    std::erase_if(row.values, same);
    row.values.emplace_back(value.id, sum / weight);
  }
  return row;
}

}  // namespace looptorch::report
