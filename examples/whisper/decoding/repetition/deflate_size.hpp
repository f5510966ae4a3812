// SPDX-License-Identifier: MIT
// Computes the size in bytes to which zlib would compress a text, without making the compressed bytes. A text
// that compresses too well repeats itself, and Whisper decodes it again (fallback.hpp). Follows zlib's search
// for matches (level 6: lazy matching on chains of hashes), so the size equals zlib's, except for a text of
// more than 16383 literals and repeats: zlib divides it into several blocks, but here it counts as one. Takes
// some 20 microseconds for a 30 s window.
#pragma once

#include "deflate_codes.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace whisper {

namespace detail {

/// Finds the literals and repeats of a text as zlib's `deflate_slow` does at level 6, and counts them.
class RepeatFinder {
 public:
  explicit RepeatFinder(std::string_view text)
      : text_(text), heads_(kHashMask + 1, 0), previous_(text.size(), 0) {}

  DeflateCounts count() {
    std::size_t at = 0, last_length = kShortest - 1;
    bool pending = false;  // the byte before `at` has not been counted
    while (at < text_.size()) {
      const auto candidate = insert(at);
      const auto last = Repeat{last_length, start_};
      last_length = kShortest - 1;
      if (candidate != 0 && last.length < kLazyLength && at - candidate <= kFarthest) {
        last_length = longest(at, candidate, last.length);
        if (last_length == kShortest && at - start_ > kFarthestShort) last_length = kShortest - 1;
      }
      if (last.length >= kShortest && last_length <= last.length) {
        counts_.add_repeat(last.length, at - 1 - last.start);
        for (std::size_t next = at + 1; next + 1 < at + last.length; ++next) insert(next);
        at += last.length - 1;
        pending = false, last_length = kShortest - 1;
        continue;
      }
      if (pending) counts_.add_literal(byte(at - 1));
      pending = true;
      ++at;
    }
    if (pending) counts_.add_literal(byte(text_.size() - 1));
    return counts_;
  }

 private:
  struct Repeat {
    std::size_t length, start;
  };

  static constexpr std::size_t kShortest = 3, kLongest = 258, kWindow = 32768;
  static constexpr std::size_t kFarthest = kWindow - kLongest - kShortest - 1, kFarthestShort = 4096;
  static constexpr std::size_t kGoodLength = 8, kLazyLength = 16, kNiceLength = 128, kChain = 128;
  static constexpr std::uint32_t kHashMask = 0x7FFF;

  [[nodiscard]] std::uint8_t byte(std::size_t at) const { return static_cast<std::uint8_t>(text_[at]); }

  /// Adds the position to its chain; returns the last one there, or 0. Position 0 is therefore never found,
  /// as in zlib.
  std::size_t insert(std::size_t at) {
    if (at + kShortest > text_.size()) return 0;
    const auto hash =
        ((std::uint32_t{byte(at)} << 10U) ^ (std::uint32_t{byte(at + 1)} << 5U) ^ byte(at + 2)) & kHashMask;
    const auto head = heads_[hash];
    previous_[at] = head;
    heads_[hash] = static_cast<std::uint32_t>(at);
    return head;
  }

  [[nodiscard]] std::size_t common_length(std::size_t a, std::size_t b) const {
    const auto limit = std::min(kLongest, text_.size() - b);
    std::size_t length = 0;
    while (length < limit && text_[a + length] == text_[b + length]) ++length;
    return length;
  }

  /// Returns the length of the longest repeat at `at` that is longer than `length`, else `length`; sets
  /// start_.
  std::size_t longest(std::size_t at, std::size_t candidate, std::size_t length) {
    const auto nice = std::min(kNiceLength, text_.size() - at);
    const auto limit = at > kFarthest ? at - kFarthest : 0;
    auto tries = length >= kGoodLength ? kChain / 4 : kChain;
    do {
      const auto common = common_length(candidate, at);
      if (common > length) {
        start_ = candidate, length = common;
        if (common >= nice) break;
      }
      candidate = previous_[candidate];
    } while (candidate > limit && --tries > 0);
    return std::min(length, text_.size() - at);
  }

  std::string_view text_;
  std::vector<std::uint32_t> heads_, previous_;
  DeflateCounts counts_;
  std::size_t start_ = 0;
};

}  // namespace detail

/// Returns the size in bytes of `zlib.compress(text)`.
[[nodiscard]] inline std::size_t deflate_size(std::string_view text) {
  constexpr std::size_t kHeaderAndChecksum = 6, kStoredHeader = 5;
  const auto coded = (detail::RepeatFinder(text).count().bits() + 7) / 8;
  const bool stores = text.size() + kStoredHeader - 1 <= coded;
  return kHeaderAndChecksum + (stores ? text.size() + kStoredHeader : coded);
}

/// Returns the text's size over its compressed size, openai-whisper's measure of repetition; about 1 to 1.8
/// for speech. An empty text has 0.
[[nodiscard]] inline double compression_ratio(std::string_view text) {
  return static_cast<double>(text.size()) / static_cast<double>(deflate_size(text));
}

}  // namespace whisper
