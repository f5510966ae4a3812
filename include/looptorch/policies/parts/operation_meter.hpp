// SPDX-License-Identifier: MIT
// How many operations a second a run does, and which share that is of its device's peak. Counts one window
// every few seconds, and knows the others by their samples; costs nothing in those.
#pragma once

#include <looptorch/loop/run_phase.hpp>
#include <looptorch/operations/device_peaks.hpp>
#include <looptorch/operations/operation_counter.hpp>
#include <looptorch/operations/operations.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>

namespace looptorch::detail {

class OperationMeter {
 public:
  using Clock = std::chrono::steady_clock;

  struct Rates {
    double operations_per_second;
    std::optional<double> utilization;  ///< of the device's peak, from 0 to 1; nothing if that is unknown
  };

  OperationMeter() = default;
  /// Counts nothing if it is not `on`.
  OperationMeter(bool on, std::optional<DevicePeak> peak) : on_(on), peak_(peak) {}

  /// Begins a window, which is counted if it is time to. The first one is not: a loss scale may be sought in
  /// it, by doing it again.
  void begin_window(Clock::time_point now, std::int64_t samples_so_far) {
    const bool is_first = !counted_at_;
    if (!on_ || (!is_first && now < *counted_at_)) return;
    counted_at_ = is_first ? now : now + kInterval;
    if (is_first) return;
    sum_ = Operations{}, samples_before_ = samples_so_far, counts_window_ = true;
  }

  /// Notes the phase that the run is in. Only forward and backward count.
  void enter(RunPhase phase) {
    if (!counts_window_) return;
    take();
    if (phase == RunPhase::forward || phase == RunPhase::backward)
      counter_ = std::make_unique<OperationCounter>();
  }

  void end_window(std::int64_t samples_so_far) {
    if (!counts_window_) return;
    take();
    counts_window_ = false;
    const std::int64_t samples = samples_so_far - samples_before_;
    if (samples <= 0 || sum_.total() == 0) return;
    counted_.push_back({sum_, samples});
    if (counted_.size() > kWindows) counted_.pop_front();
  }

  /// Forgets the window under way, which an exception has ended.
  void drop_window() { counter_.reset(), counts_window_ = false; }

  /// Returns the rates at a number of samples a second, by the mean of the last windows that were counted;
  /// nothing before the first one.
  [[nodiscard]] std::optional<Rates> rates(double samples_per_second) const {
    if (counted_.empty()) return std::nullopt;
    Operations sum;
    std::int64_t samples = 0;
    for (const Counted& window : counted_) sum += window.operations, samples += window.samples;
    const double times = samples_per_second / static_cast<double>(samples);
    const auto at_peak = peak_ ? seconds_at_peak(sum, *peak_) : std::nullopt;
    return Rates{static_cast<double>(sum.total()) * times,
                 at_peak ? std::optional(*at_peak * times) : std::nullopt};
  }

 private:
  static constexpr std::chrono::seconds kInterval{5};
  static constexpr std::size_t kWindows = 16;

  struct Counted {
    Operations operations;
    std::int64_t samples;
  };

  void take() {
    if (counter_) sum_ += counter_->count();
    counter_.reset();
  }

  bool on_ = false;
  std::optional<DevicePeak> peak_;
  std::optional<Clock::time_point> counted_at_;  // earliest time of the next
  bool counts_window_ = false;
  Operations sum_;
  std::int64_t samples_before_ = 0;
  std::unique_ptr<OperationCounter> counter_;
  std::deque<Counted> counted_;
};

}  // namespace looptorch::detail
