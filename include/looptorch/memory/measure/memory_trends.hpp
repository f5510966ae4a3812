// SPDX-License-Identifier: MIT
// Detects faults in a run's memory from a few numbers a window: growth, a spike, allocator fragmentation.
// Reports each once. Normal changes do not trigger it: batches of changing length, moments and averages that
// appear, layers that are unfrozen.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

namespace looptorch {

/// Detects memory that grows from window to window, or from epoch to epoch: the least that a block of windows
/// leaves allocated rises from time to time, and never falls. Growth with a known reason, as moments that
/// appear, does not count.
class GrowthTrend {
 public:
  static constexpr std::int64_t kBlock = 8;     ///< Windows.
  static constexpr std::int64_t kRises = 6;     ///< Blocks that rise, with none that falls between.
  static constexpr std::int64_t kLeast = 4096;  ///< Bytes that the rises add up to.

  /// Takes what a window left. `explain()` returns the known bytes in it, and is called if a block rises.
  /// Returns bytes per window once growth is certain.
  template <class Explain>
  std::optional<double> add(std::int64_t allocated, Explain&& explain) {
    least_ = in_block_ == 0 ? allocated : std::min(least_, allocated);
    if (++in_block_ < kBlock) return std::nullopt;
    in_block_ = 0;
    if (blocks_ == 0 || least_ > last_) explained_ = explain();
    last_ = least_;
    return end_block(least_ - explained_);
  }

 private:
  std::optional<double> end_block(std::int64_t unexplained) {
    ++blocks_;
    const std::int64_t before = std::exchange(unexplained_, unexplained);
    if (blocks_ == 1 || unexplained < before) rises_ = 0;
    if (rises_ == 0) base_ = unexplained, base_block_ = blocks_;
    if (blocks_ > 1 && unexplained > before && rises_++ == 0) base_ = before, base_block_ = blocks_ - 1;
    if (rises_ < kRises || unexplained - base_ < kLeast) return std::nullopt;
    return static_cast<double>(unexplained - base_) / static_cast<double>((blocks_ - base_block_) * kBlock);
  }

  std::int64_t least_ = 0, last_ = 0, explained_ = 0, unexplained_ = 0, base_ = 0;
  std::int64_t in_block_ = 0, blocks_ = 0, base_block_ = 0, rises_ = 0;
};

/// Detects a window that needs half as much again as nearly all others.
class SpikeTrend {
 public:
  static constexpr std::int64_t kFirst = 32;  ///< Windows before one can be noticed.
  static constexpr double kFactor = 1.5;      ///< Times what 95 of 100 windows need.

  /// Takes a window's peak. If it is far beyond the usual, returns the usual.
  std::optional<std::int64_t> add(std::int64_t peak) {
    const std::int64_t bytes = usual();
    const bool far = windows_ >= kFirst && static_cast<double>(peak) > kFactor * static_cast<double>(bytes);
    ++counts_[bin(peak)];
    ++windows_;
    return far ? std::optional(bytes) : std::nullopt;
  }

  /// Returns what 95 of 100 windows need at most, within a twelfth.
  [[nodiscard]] std::int64_t usual() const {
    std::int64_t seen = 0;
    for (std::size_t i = 0; i < counts_.size(); ++i) {
      seen += counts_[i];
      if (seen > 0 && 20 * seen >= 19 * windows_)
        return static_cast<std::int64_t>(std::exp2(static_cast<double>(i + 1) / kBins));
    }
    return 0;
  }

 private:
  static constexpr std::size_t kBins = 8;  // to each power of two

  static std::size_t bin(std::int64_t bytes) {
    return bytes < 1 ? 0 : static_cast<std::size_t>(std::log2(static_cast<double>(bytes)) * kBins);
  }

  std::array<std::int64_t, 64 * kBins> counts_{};
  std::int64_t windows_ = 0;
};

/// Returns the bytes that an allocator holds in unusable pieces, if they are worth a report: a quarter of
/// what it holds, and at least 64 MB.
[[nodiscard]] inline std::optional<std::int64_t> fragmented(std::int64_t peak_reserved,
                                                            std::int64_t peak_allocated) {
  constexpr std::int64_t kLeast = 64'000'000;
  const std::int64_t unused = peak_reserved - peak_allocated;
  if (unused < kLeast || 4 * unused < peak_reserved) return std::nullopt;
  return unused;
}

}  // namespace looptorch
