// SPDX-License-Identifier: MIT
// Removes symbols and diacritics from text: decomposes characters (NFKD), drops marks, and replaces each
// symbol and punctuation mark by a space. Takes up to three table look-ups for each character beyond ASCII.
#pragma once

#include <looptorch/base/text/utf8.hpp>
#include <looptorch/base/unicode/canonical_form.hpp>
#include <looptorch/metrics/unicode/grapheme_clusters.hpp>

#include "plain_letters.hpp"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>

namespace whisper::detail {

/// True for the symbols that the number rules need: decimal points, per cent and money.
[[nodiscard]] constexpr bool is_numeric_symbol(char32_t c) {
  return c == U'.' || c == U'%' || c == U'$' || c == U'\u00A2' || c == U'\u00A3' || c == U'\u20AC';
}

/// Returns the replacement of `c`, or nothing if it has none.
[[nodiscard]] inline std::optional<std::string_view> replacement_of(char32_t c) {
  const auto* after =
      std::upper_bound(std::begin(kLetterReplacements), std::end(kLetterReplacements), c,
                       [](char32_t value, const LetterReplacements& row) { return value < row.first; });
  if (after == std::begin(kLetterReplacements)) return std::nullopt;
  auto targets = std::prev(after)->targets;
  for (auto skipped = c - std::prev(after)->first; skipped > 0; --skipped) {
    const auto bar = targets.find('|');
    if (bar == std::string_view::npos) return std::nullopt;
    targets.remove_prefix(bar + 1);
  }
  return targets.substr(0, targets.find('|'));
}

inline void append_plain(std::string& out, char32_t c) {
  if (is_numeric_symbol(c)) return looptorch::append_utf8(out, c);
  if (looptorch::find_range(kBlankedSymbols, c)) return out.push_back(' ');
  if (c < 0x80) return out.push_back(static_cast<char>(c));
  if (looptorch::find_range(kDroppedMarks, c)) return;
  if (c >= 0xAC00 && c <= 0xD7A3) {
    std::string syllable;
    looptorch::append_utf8(syllable, c);
    out += looptorch::canonical_form(syllable);
    return;
  }
  if (const auto target = replacement_of(c))
    out += *target;
  else
    looptorch::append_utf8(out, c);
}

[[nodiscard]] inline std::string without_symbols_and_diacritics(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const auto step = looptorch::utf8_step(text, at);
    append_plain(out, step.code_point);
    at += step.size;
  }
  return out;
}

}  // namespace whisper::detail
