// SPDX-License-Identifier: MIT
// Estimates a run's remaining time from the pace in the later half of the time so far, so that a slow first
// step or an early change of pace has no effect. Costs a comparison a step.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace looptorch::detail {

class TimeLeft {
 public:
  /// Notes that step `step` ended at `seconds`, on a monotonic clock.
  void note(double seconds, std::int64_t step) {
    now_ = {seconds, step};
    if (marks_.empty()) marks_.reserve(kMaxMarks);  // so that later steps allocate nothing
    if (!marks_.empty() && seconds - marks_.back().seconds < spacing_) return;
    marks_.push_back(now_);
    if (marks_.size() >= kMaxMarks) thin_out();
  }

  /// Returns the seconds up to the end of step `total`; nothing before two steps have ended.
  [[nodiscard]] std::optional<double> seconds_to(std::int64_t total) const {
    if (marks_.empty() || now_.step == marks_.front().step) return std::nullopt;
    const double middle = (marks_.front().seconds + now_.seconds) / 2;
    const auto later = std::partition_point(marks_.begin(), marks_.end(),
                                            [&](const Mark& mark) { return mark.seconds <= middle; });
    const Mark before = later == marks_.begin() ? marks_.front() : *(later - 1);
    const Mark from = before.step < now_.step ? before : marks_.front();
    const double pace = (now_.seconds - from.seconds) / static_cast<double>(now_.step - from.step);
    return pace * static_cast<double>(std::max<std::int64_t>(total - now_.step, 0));
  }

 private:
  static constexpr std::size_t kMaxMarks = 256;

  struct Mark {
    double seconds = 0;
    std::int64_t step = 0;
  };

  /// Keeps every second mark, the first among them.
  void thin_out() {
    for (std::size_t i = 0; 2 * i < marks_.size(); ++i) marks_[i] = marks_[2 * i];
    marks_.resize((marks_.size() + 1) / 2);
    spacing_ = 2 * std::max(spacing_, (now_.seconds - marks_.front().seconds) / kMaxMarks);
  }

  std::vector<Mark> marks_;
  Mark now_;
  double spacing_ = 0;
};

}  // namespace looptorch::detail
