// SPDX-License-Identifier: MIT
// Reads a metric for a policy that acts on it, such as StopEarly: returns each published value once. Also
// checks that a saved state belongs to this policy, and not to another one of the same type, such as a second
// StopEarly.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/state_dict.hpp>
#include <looptorch/loop/run.hpp>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>

namespace looptorch::detail {

class MetricReader {
 public:
  /// Notes that the policy `consumer` waits for the metric.
  void begin_fit(Run& run, const std::string& metric, const char* consumer) {
    run.metrics().await(metric, consumer);
    if (!first_epoch_) first_epoch_ = run.progress().epoch;
    const std::int64_t now = run.metrics().publications(metric);
    seen_ = std::min(seen_, now);  // a board that was reset
    within_ = std::min(within_, now);
  }
  void end_fit(const Run& run, const std::string& metric) { within_ = run.metrics().publications(metric); }

  /// Throws UsageError if the metric was not published in the first epoch and is not announced.
  void begin_epoch(const Run& run, const std::string& metric, const char* consumer) const {
    if (run.progress().epoch > first_epoch_) run.metrics().require_published(metric, consumer);
  }

  /// Returns the value if it was published since the last call.
  std::optional<double> next(const Run& run, const std::string& metric) {
    const std::int64_t publications = run.metrics().publications(metric);
    if (publications <= seen_) return std::nullopt;
    seen_ = publications;
    return run.metrics().find(metric);
  }

  /// Returns the value, as a fit begins, if it was published since the last call and after the last fit. A
  /// value published within that fit, or before the snapshot being resumed, waits for `next`, where an
  /// uninterrupted run reads it.
  std::optional<double> next_at_begin(const Run& run, const std::string& metric) {
    return run.metrics().publications(metric) > within_ ? next(run, metric) : std::nullopt;
  }

  void save(StateDict& out) const { out.set("seen", seen_); }
  void load(const StateDict& in) {
    seen_ = in.get<std::int64_t>("seen");
    within_ = std::numeric_limits<std::int64_t>::max();
  }

 private:
  std::int64_t seen_ = 0;
  std::int64_t within_ = 0;  // publications within the fit before
  std::optional<std::int64_t> first_epoch_;
};

/// Throws StateError unless `in` was saved by `mine`. Several policies of one type each have a state, told
/// apart only by the order in which they are listed.
inline void require_state_of(const std::string& mine, const StateDict& in) {
  if (const auto& of = in.get<std::string>("of"); of != mine)
    throw StateError(message("this is the state of ", of, ", not of ", mine,
                             ": list policies of one type in the order in which they were saved"));
}

}  // namespace looptorch::detail
