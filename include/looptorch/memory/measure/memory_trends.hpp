// SPDX-License-Identifier: MIT
// Detects faults in a run's memory from a few numbers per window: growth, a spike, allocator fragmentation.
// Reports each fault once. Does not report normal changes: batches of another length, new moments or
// averages, newly unfrozen layers.
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
/// leaves allocated rises from time to time, and never falls. Growth with a known reason, such as new
/// moments, does not count.
class GrowthTrend {
 public:
  static constexpr std::int64_t kBlock = 8;     ///< Windows.
  static constexpr std::int64_t kRises = 6;     ///< Rising blocks, without a falling one between them.
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
    const std::int64_t before = std::exchange(unexplained_, unexplained);
    if (blocks_++ == 0) return std::nullopt;
    if (unexplained < before) run_ = RunOfRises{};
    if (unexplained > before) {
      if (run_.rises == 0) run_ = {.bytes_before = before, .blocks_before = blocks_ - 1};
      ++run_.rises;
    }
    const std::int64_t grown = unexplained - run_.bytes_before;
    if (run_.rises < kRises || grown < kLeast) return std::nullopt;
    return static_cast<double>(grown) / static_cast<double>((blocks_ - run_.blocks_before) * kBlock);
  }

  /// Blocks of which none falls below the one before it.
  struct RunOfRises {
    std::int64_t rises = 0;          // blocks above the one before them
    std::int64_t bytes_before = 0;   // unexplained, in the last block before the first rise
    std::int64_t blocks_before = 0;  // up to that block
  };

  std::int64_t least_ = 0, last_ = 0, explained_ = 0, unexplained_ = 0;
  std::int64_t in_block_ = 0, blocks_ = 0;
  RunOfRises run_;
};

/// Detects a window that needs half as much again as nearly all others.
class SpikeTrend {
 public:
  static constexpr std::int64_t kFirst = 32;  ///< Windows before one can be noticed.
  static constexpr double kFactor = 1.5;      ///< Times what 95 of 100 windows need.

  /// Takes a window's peak. Returns the usual peak if this one is far higher.
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
  static constexpr std::size_t kBins = 8;  // for each power of two

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
