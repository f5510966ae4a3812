// SPDX-License-Identifier: MIT
// Helpers for the English normaliser's rules, which take the place of Python's regular expressions. They
// match \w, \d and \b as Python does, and replace from left to right. The text must be UTF-8. Takes linear
// time.
#pragma once

#include <looptorch/base/text/utf8.hpp>
#include <looptorch/metrics/unicode/grapheme_clusters.hpp>

#include "plain_letters.hpp"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <string>
#include <string_view>

namespace whisper::detail {

[[nodiscard]] constexpr bool is_ascii_digit(char32_t c) { return c >= U'0' && c <= U'9'; }
[[nodiscard]] constexpr bool is_ascii_lower(char32_t c) { return c >= U'a' && c <= U'z'; }

/// True for \w: letters and numbers of any script, and "_".
[[nodiscard]] inline bool is_word_character(char32_t c) {
  if (c < 0x80) return is_ascii_lower(c | 0x20) || is_ascii_digit(c) || c == U'_';
  return looptorch::find_range(kWordCharacters, c) != nullptr;
}

/// Returns the value of a decimal digit of any script (\d), else -1.
[[nodiscard]] inline int digit_value(char32_t c) {
  const auto* after = std::upper_bound(std::begin(kDigitZeros), std::end(kDigitZeros), c);
  const bool is_digit = after != std::begin(kDigitZeros) && c - *std::prev(after) < 10;
  return is_digit ? static_cast<int>(c - *std::prev(after)) : -1;
}

/// True if \b matches at byte `at`.
[[nodiscard]] inline bool is_word_boundary(std::string_view text, std::size_t at) {
  auto before = at;
  while (before > 0 && (static_cast<unsigned char>(text[--before]) & 0xC0) == 0x80) continue;
  const bool ends = at > 0 && is_word_character(looptorch::utf8_step(text, before).code_point);
  const bool begins = at < text.size() && is_word_character(looptorch::utf8_step(text, at).code_point);
  return ends != begins;
}

/// Returns the text after one pass of a rule. `rule(text, at, out)` either appends a replacement for the text
/// from `at` on and returns the number of replaced bytes, or returns 0 to keep the character at `at`.
template <class Rule>
[[nodiscard]] std::string rewrite(std::string_view text, Rule rule) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t replaced = rule(text, at, out);
    if (replaced == 0) out += text[at];
    at += std::max<std::size_t>(replaced, 1);
  }
  return out;
}

/// The ends of a pattern that must be word boundaries.
enum class Bounded { at_end, at_both_ends };

/// Replaces each occurrence of `pattern`, which must not be empty, between boundaries.
inline void replace_all(std::string& text, std::string_view pattern, std::string_view replacement,
                        Bounded bounded) {
  std::string out;
  std::size_t copied = 0;
  for (auto at = text.find(pattern); at != std::string::npos; at = text.find(pattern, at)) {
    const bool begins = bounded == Bounded::at_end || is_word_boundary(text, at);
    if (!begins || !is_word_boundary(text, at + pattern.size())) {
      ++at;
      continue;
    }
    out.append(text, copied, at - copied).append(replacement);
    copied = at += pattern.size();
  }
  if (copied > 0) text = out.append(text, copied);
}

}  // namespace whisper::detail
