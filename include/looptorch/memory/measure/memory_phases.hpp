// SPDX-License-Identifier: MIT
// Breaks a run's memory down by phases of the step: the peak of each phase, and what a window leaves
// allocated. Each reading costs a few additions.
#pragma once

#include <looptorch/memory/measure/host_memory.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

namespace looptorch {

/// The phases of a run, as memory sees them.
enum class MemoryPhase {
  forward,     ///< Forward pass and loss of a micro-batch.
  backward,    ///< From there to the next micro-batch, or to the update; includes clipping.
  update,      ///< The optimizer's step, and the end of the gradients.
  evaluation,  ///< An evaluation, from its first batch to its last.
  between,     ///< Anything else: data, other policies.
};

inline constexpr std::array kMemoryPhases{MemoryPhase::forward, MemoryPhase::backward, MemoryPhase::update,
                                          MemoryPhase::evaluation, MemoryPhase::between};

[[nodiscard]] constexpr std::string_view to_string(MemoryPhase phase) {
  constexpr std::array<std::string_view, kMemoryPhases.size()> kNames{"forward", "backward", "update",
                                                                      "evaluation", "between steps"};
  return kNames[static_cast<std::size_t>(phase)];
}

/// A peak, and what was known of its micro-batch. In bytes.
struct MemoryPeak {
  std::int64_t bytes = 0;  ///< All tensors at once.
  MemoryPhase phase = MemoryPhase::between;
  std::int64_t step = 0;   ///< Windows finished before it.
  std::int64_t held = 0;   ///< Left by the window before.
  std::int64_t entry = 0;  ///< Bytes as the forward pass of its micro-batch began.
  std::int64_t saved = 0;  ///< Bytes that this forward pass kept for backward.
};

/// The phases of a run in order. `enter` and `end_window` take a reading whose peak was reset at the previous
/// call.
class MemoryPhases {
 public:
  /// Ends the phase under way.
  void enter(MemoryPhase next, const MemoryReading& now, std::int64_t step) {
    close(now, step);
    if (phase_ == MemoryPhase::forward) saved_ = now.allocated - entry_;
    if (next == MemoryPhase::forward) entry_ = now.allocated;
    phase_ = next;
  }

  /// Ends the window, and returns its peak.
  std::int64_t end_window(const MemoryReading& now, std::int64_t step) {
    close(now, step);
    held_ = now.allocated;
    phase_ = MemoryPhase::between;
    return std::exchange(window_peak_, 0);
  }

  /// Begins anew; existing tensors count as held outside of the run's windows.
  void begin(const MemoryReading& now) {
    *this = {};
    held_ = now.allocated;
  }

  [[nodiscard]] MemoryPhase phase() const { return phase_; }
  /// Returns the most bytes that were allocated at once in `phase`; 0 if `phase` has not occurred.
  [[nodiscard]] std::int64_t peak_in(MemoryPhase phase) const {
    return peaks_[static_cast<std::size_t>(phase)];
  }
  [[nodiscard]] const MemoryPeak& peak() const { return peak_; }
  [[nodiscard]] std::int64_t peak_reserved() const { return peak_reserved_; }
  /// Returns the bytes that the last window left.
  [[nodiscard]] std::int64_t held() const { return held_; }

  /// Adds bytes that the run will hold in all phases.
  void add(std::int64_t bytes) {
    for (std::int64_t& peak : peaks_)
      if (peak > 0) peak += bytes;
    peak_.bytes += bytes, peak_.held += bytes, peak_.entry += bytes;
    peak_reserved_ += bytes, held_ += bytes, entry_ += bytes;
  }
  /// Subtracts bytes that never belonged to the run.
  void subtract(std::int64_t bytes) { add(-bytes); }

 private:
  void close(const MemoryReading& now, std::int64_t step) {
    std::int64_t& most = peaks_[static_cast<std::size_t>(phase_)];
    most = std::max(most, now.peak);
    window_peak_ = std::max(window_peak_, now.peak);
    peak_reserved_ = std::max(peak_reserved_, now.peak_reserved);
    if (now.peak <= peak_.bytes) return;
    const bool in_forward = phase_ == MemoryPhase::forward;
    peak_ = {now.peak, phase_, step, held_, entry_, in_forward ? now.allocated - entry_ : saved_};
  }

  std::array<std::int64_t, kMemoryPhases.size()> peaks_{};
  MemoryPeak peak_;
  MemoryPhase phase_ = MemoryPhase::between;
  std::int64_t peak_reserved_ = 0, window_peak_ = 0, held_ = 0, entry_ = 0, saved_ = 0;
};

}  // namespace looptorch
