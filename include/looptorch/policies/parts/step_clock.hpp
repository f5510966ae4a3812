// SPDX-License-Identifier: MIT
// Divides a run's time by what the thread that trains does. Two readings of a clock a phase, some 50 ns. On a
// device, which works behind the host, time counts where the host waits for it.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <string_view>
#include <utility>

namespace looptorch {

/// What a run spends its time on.
enum class RunPhase {
  data,        ///< waiting for a loader
  forward,     ///< forward passes and losses, in training
  backward,    ///< differentiation, and between micro-batches
  update,      ///< clipping, optimizers, and what policies do at a window's end
  evaluation,  ///< evaluations, with their data
  snapshot,    ///< snapshots, up to the next forward pass
  other,       ///< everything else, as between windows without a loader
};
inline constexpr std::array<std::string_view, 7> kRunPhases = {"data",       "forward",  "backward", "update",
                                                               "evaluation", "snapshot", "other"};

namespace detail {

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
  /// Counts time of the phase `from` as waiting for data.
  void move_to_data(RunPhase from, double seconds) {
    of(from) -= seconds;
    of(RunPhase::data) += seconds;
  }

  /// Returns the phase under way.
  [[nodiscard]] RunPhase phase() const { return phase_; }
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

}  // namespace detail
}  // namespace looptorch
