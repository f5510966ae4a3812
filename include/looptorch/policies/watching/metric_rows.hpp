// SPDX-License-Identifier: MIT
// Builds the rows of a run's metrics on the training thread. Known numbers are stored as values; numbers on a
// device are stored as handles, and read later in one copy. Takes no lock, formats no text and never waits.
// Costs some 20 ns a number.
#pragma once

#include <looptorch/objective/loss.hpp>
#include <looptorch/objective/running_mean.hpp>
#include <looptorch/report/arriving_numbers.hpp>
#include <looptorch/report/metric_row.hpp>

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace looptorch::detail {

/// Rows not yet handed over. The last one grows until `end_row`.
class MetricRows {
 public:
  /// Returns the id of a metric of an update, or of the run with an `update` of -1; `written` returns the
  /// name in files, and is called once a metric.
  template <class Written>
  report::MetricId id(std::size_t update, std::string_view name, Written&& written) {
    for (const Known& known : known_)
      if (known.update == update && known.name == name) return known.id;
    known_.push_back({update, std::string(name), next_++});
    batch_.new_names.push_back(written());
    return known_.back().id;
  }

  /// Adds a number to the growing row.
  void add(report::MetricId id, const Quantity& value) {
    report::UnreadValue entry{.id = id};
    if (value.is_known())
      entry.number = value.number();
    else
      entry.now = slot(value.tensor());
    if (!value.is_known() && entry.now == report::UnreadValue::kNone)
      entry.number = std::numeric_limits<double>::quiet_NaN();
    row_.values.push_back(entry);
  }

  /// Adds the mean of what `now` has beyond `before`, if anything.
  void add_difference(report::MetricId id, const UnreadSum& now, const UnreadSum& before) {
    if (now.known_weight == before.known_weight && now.sum.is_same(before.sum) &&
        now.weight.is_same(before.weight))
      return;
    report::UnreadValue entry{.id = id,
                              .number = now.known_sum - before.known_sum,
                              .weight = now.known_weight - before.known_weight};
    entry.now = slot(now.sum), entry.before = slot(before.sum);
    entry.weight_now = slot(now.weight), entry.weight_before = slot(before.weight);
    row_.values.push_back(entry);
  }

  [[nodiscard]] bool row_is_empty() const { return row_.values.empty(); }
  /// Ends the growing row, and begins another.
  void end_row(std::int64_t step, std::int64_t epoch, double seconds) {
    row_.step = step, row_.epoch = epoch, row_.seconds = seconds;
    batch_.rows.push_back(std::exchange(row_, {}));
  }

  /// Returns how many rows have ended.
  [[nodiscard]] std::size_t size() const { return batch_.rows.size(); }
  /// Returns how many numbers wait on a device.
  [[nodiscard]] std::size_t unread() const { return slots_.size(); }

  /// Returns all ended rows, and starts the copy of their numbers. The growing row must be empty.
  [[nodiscard]] report::RowBatch take() {
    if (!slots_.empty()) batch_.slots = std::make_shared<report::ArrivingNumbers>(slots_);
    slots_.clear();
    return std::exchange(batch_, {});
  }

 private:
  struct Known {
    std::size_t update;
    std::string name;
    report::MetricId id;
  };

  /// Returns where a number will be read; kNone if nowhere.
  std::int32_t slot(const at::Tensor& number) {
    if (!number.defined() || number.is_meta()) return report::UnreadValue::kNone;
    constexpr std::size_t kLookedAt = 8;  // the sums of the row before are among the last
    for (std::size_t i = slots_.size(), seen = 0; i-- > 0 && seen < kLookedAt; ++seen)
      if (slots_[i].is_same(number)) return static_cast<std::int32_t>(i);
    slots_.push_back(number);
    return static_cast<std::int32_t>(slots_.size() - 1);
  }

  std::vector<Known> known_;
  report::MetricId next_ = 0;
  report::UnreadRow row_;
  report::RowBatch batch_;
  std::vector<at::Tensor> slots_;
};

}  // namespace looptorch::detail
