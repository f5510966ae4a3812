// SPDX-License-Identifier: MIT
// Measures how much of a run's time each phase of a step takes on the training thread. Costs two readings of
// a clock per phase, some 50 ns. A device works asynchronously, so its time counts in the phase in which the
// host waits for it.
#pragma once

#include <looptorch/loop/run_phase.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <utility>

namespace looptorch::detail {

class StepClock {
 public:
  using Clock = std::chrono::steady_clock;
  using Seconds = std::array<double, kRunPhases.size()>;

  /// Ends the phase under way, begins `phase`, and returns the former.
  RunPhase enter(RunPhase phase) {
    const auto now = Clock::now();
    of(phase_) += std::chrono::duration<double>(now - since_).count();
    since_ = now;
    return std::exchange(phase_, phase);
  }

  /// Returns the time of the last `enter`.
  [[nodiscard]] Clock::time_point now() const { return since_; }
  /// Returns the seconds of each phase since the last call.
  [[nodiscard]] Seconds take() { return std::exchange(seconds_, Seconds{}); }

 private:
  double& of(RunPhase phase) { return seconds_[static_cast<std::size_t>(phase)]; }

  RunPhase phase_ = RunPhase::other;
  Clock::time_point since_ = Clock::now();
  Seconds seconds_{};
};

}  // namespace looptorch::detail
