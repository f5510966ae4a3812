// SPDX-License-Identifier: MIT
// Measures a run's floating-point operations (FLOPs) a second, and their share of its device's peak (MFU).
// Counts the FLOPs of one window every few seconds. Estimates the FLOPs of other windows from their numbers
// of samples, at no cost.
#pragma once

#include <looptorch/flops/device_peaks.hpp>
#include <looptorch/flops/flop_counter.hpp>
#include <looptorch/flops/flops.hpp>
#include <looptorch/loop/run_phase.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>

namespace looptorch::detail {

class FlopMeter {
 public:
  using Clock = std::chrono::steady_clock;

  struct Rates {
    double flops_per_second;
    std::optional<double> utilization;  ///< share of the device's peak, from 0 to 1; nothing if unknown
  };

  FlopMeter() = default;
  /// Counts nothing if it is not `on`.
  FlopMeter(bool on, std::optional<DevicePeak> peak) : on_(on), peak_(peak) {}

  /// Begins a window, and counts it if one is due; never the first, which may be retried to find a loss
  /// scale.
  void begin_window(Clock::time_point now, std::int64_t samples_so_far) {
    const bool is_first = !counted_at_;
    if (!on_ || (!is_first && now < *counted_at_)) return;
    counted_at_ = is_first ? now : now + kInterval;
    if (is_first) return;
    sum_ = Flops{}, samples_before_ = samples_so_far, counts_window_ = true;
  }

  /// Notes the phase that the run is in. Only forward and backward count.
  void enter(RunPhase phase) {
    if (!counts_window_) return;
    take();
    if (phase == RunPhase::forward || phase == RunPhase::backward) counter_ = std::make_unique<FlopCounter>();
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

  /// Forgets a window that threw.
  void drop_window() { counter_.reset(), counts_window_ = false; }

  /// Returns the rates of a stretch of the run, by the mean of the last counted windows; nothing before the
  /// first one. Adds the stretch to the whole run's.
  [[nodiscard]] std::optional<Rates> rates(std::int64_t samples, double seconds) {
    if (counted_.empty() || seconds <= 0) return std::nullopt;
    Flops sum;
    std::int64_t counted = 0;
    for (const Counted& window : counted_) sum += window.flops, counted += window.samples;
    const double times = static_cast<double>(samples) / static_cast<double>(counted);
    const auto at_peak = peak_ ? seconds_at_peak(sum, *peak_) : std::nullopt;
    Stretch stretch{static_cast<double>(sum.total()) * times, seconds, std::nullopt};
    if (at_peak) stretch.at_peak = *at_peak * times;
    whole_.flops += stretch.flops, whole_.seconds += seconds;
    if (at_peak) whole_.at_peak = whole_.at_peak.value_or(0) + *stretch.at_peak;
    return stretch.rates();
  }

  /// Returns the rates of all stretches; nothing if there are none.
  [[nodiscard]] std::optional<Rates> of_run() const {
    return whole_.seconds > 0 ? std::optional(whole_.rates()) : std::nullopt;
  }

 private:
  static constexpr std::chrono::seconds kInterval{5};
  static constexpr std::size_t kWindows = 16;

  struct Counted {
    Flops flops;
    std::int64_t samples;
  };
  struct Stretch {
    double flops = 0, seconds = 0;
    std::optional<double> at_peak = {};  // seconds that the device needs at its peak

    [[nodiscard]] Rates rates() const {
      return {flops / seconds, at_peak ? std::optional(*at_peak / seconds) : std::nullopt};
    }
  };

  void take() {
    if (counter_) sum_ += counter_->count();
    counter_.reset();
  }

  bool on_ = false;
  std::optional<DevicePeak> peak_;
  std::optional<Clock::time_point> counted_at_;  // earliest time of the next
  bool counts_window_ = false;
  Flops sum_;
  std::int64_t samples_before_ = 0;
  std::unique_ptr<FlopCounter> counter_;
  std::deque<Counted> counted_;
  Stretch whole_;
};

}  // namespace looptorch::detail
