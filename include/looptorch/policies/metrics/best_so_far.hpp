// SPDX-License-Identifier: MIT
// Remembers the best value of a metric so far, for StopEarly, RestoreBest, PlateauDecay and SnapshotEvery.
#pragma once

#include <looptorch/base/state_dict.hpp>

#include <cstdint>
#include <limits>
#include <optional>

namespace looptorch {

/// Says which of two values of a metric is better.
enum class Better {
  lower,   ///< losses, error rates
  higher,  ///< accuracies, scores
};

/// The best value so far, and the step at which it was published.
class BestSoFar {
 public:
  /// Takes `value` if it passes the best by more than `margin`, and returns true if so. Never takes NaN.
  bool offer(double value, std::int64_t step, Better better, double margin = 0.0) {
    const bool passes = better == Better::lower ? value < value_.value_or(kInfinity) - margin
                                                : value > value_.value_or(-kInfinity) + margin;
    if (passes) {
      value_ = value;
      step_ = step;
    }
    return passes;
  }

  /// Returns the best value; empty before the first.
  [[nodiscard]] const std::optional<double>& value() const { return value_; }
  /// Returns the step of the best value; -1 before the first.
  [[nodiscard]] std::int64_t step() const { return step_; }

  void save(StateDict& out) const {
    if (value_) out.set("value", *value_);
    out.set("step", step_);
  }
  void load(const StateDict& in) {
    step_ = in.get<std::int64_t>("step");
    value_ = step_ < 0 ? std::nullopt : std::optional(in.get<double>("value"));
  }

 private:
  static constexpr double kInfinity = std::numeric_limits<double>::infinity();

  std::optional<double> value_;
  std::int64_t step_ = -1;
};

}  // namespace looptorch
