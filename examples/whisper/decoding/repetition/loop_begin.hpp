// SPDX-License-Identifier: MIT
// Detects that a text has run into a loop while it is decoded, so that decoding can stop. Whisper may repeat
// itself on sounds or languages that it does not know.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace whisper {

inline constexpr std::size_t kLoopCopies = 5;   ///< Fewest equal pieces in a row that count as a loop.
inline constexpr std::size_t kLoopTokens = 24;  ///< Fewest tokens of such a loop.

/// Returns the length of `ids` up to the end of the first piece if they end in a loop: at least kLoopCopies
/// copies of one piece, with at least kLoopTokens tokens together. "Zero zero zero" and "ha ha ha ha ha ha"
/// are not loops. Costs at most a fifth of the ids' number for each piece that partly repeats, and usually
/// one comparison.
inline std::optional<std::size_t> loop_begin(const std::vector<int64_t>& ids) {
  for (std::size_t piece = 1; piece * kLoopCopies <= ids.size(); ++piece) {
    const auto copies = std::max(kLoopCopies, (kLoopTokens + piece - 1) / piece);
    if (piece * copies > ids.size()) continue;
    const auto first = ids.end() - static_cast<std::ptrdiff_t>(piece * copies);
    if (std::equal(first + static_cast<std::ptrdiff_t>(piece), ids.end(), first))
      return ids.size() - piece * (copies - 1);
  }
  return std::nullopt;
}

}  // namespace whisper
