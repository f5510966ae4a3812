// SPDX-License-Identifier: MIT
// Detects a jump of the learning rate, for ScheduleLr's warning. The rate jumps when a run continues with
// another length than its schedule was made for.
#pragma once

#include <looptorch/base/error.hpp>

#include <algorithm>
#include <cstdint>
#include <string>

namespace looptorch::detail {

/// Shares of the full rate around a change of a schedule's end.
struct RateJump {
  static constexpr double kTolerated = 1.5;  // a decay's own steps are mostly smaller

  double last;     ///< in the last update
  double planned;  ///< in the next update, with the old end
  double now;      ///< in the next update

  [[nodiscard]] bool rises() const { return now > kTolerated * std::max(last, planned); }
  [[nodiscard]] bool is_jump() const { return rises() || now * kTolerated < std::min(last, planned); }

  /// Returns a warning that names both rates and both ends; `full` is the full rate, `step` the next step.
  [[nodiscard]] std::string sentence(double full, std::int64_t step, std::int64_t end_before,
                                     std::int64_t end) const {
    return message(
        "the learning rate ", rises() ? "jumps" : "drops", " from ", full * last, " to ", full * now,
        " in step ", step, ": ScheduleLr's decay was to end at step ", end_before,
        ", by the length of the fit before, and now ends at step ", end,
        ". Give all fits of a run the same epochs or max_steps, the decay its own total_steps, or take "
        "one without an end, such as ConstantLr. See docs/errors.md#rate-jump");
  }
};

}  // namespace looptorch::detail
