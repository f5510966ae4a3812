// SPDX-License-Identifier: MIT
// Converts text to Unicode's normal form D, in which two spellings of one text agree, such as "é" as one
// character or as "e" with an accent. Linear, with a look-up or two in a table for each character beyond
// ASCII.
#pragma once

#include <looptorch/base/unicode/canonical_tables.hpp>
#include <looptorch/base/utf8.hpp>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <string>
#include <string_view>

namespace looptorch {

/// Returns the text in normal form D (UAX #15). Two texts are canonically equivalent exactly if the results
/// are equal. Bytes that are not UTF-8 become U+FFFD.
[[nodiscard]] std::string canonical_form(std::string_view text);

namespace detail {

[[nodiscard]] inline int combining_class(char32_t c) {
  const auto* after =
      std::upper_bound(std::begin(kCombiningClasses), std::end(kCombiningClasses), c,
                       [](char32_t value, const CombiningClass& range) { return value < range.first; });
  const bool is_in = after != std::begin(kCombiningClasses) && c <= std::prev(after)->last;
  return is_in ? std::prev(after)->value : 0;
}

/// Returns the two or three letters of a Hangul syllable.
[[nodiscard]] inline std::u32string hangul_letters(char32_t syllable) {
  constexpr char32_t kVowels = 21, kEndings = 28;
  const char32_t index = syllable - 0xAC00, ending = index % kEndings;
  std::u32string letters{0x1100 + index / (kVowels * kEndings), 0x1161 + index / kEndings % kVowels};
  if (ending != 0) letters += 0x11A7 + ending;
  return letters;
}

inline void append_decomposed(std::u32string& out, char32_t c) {
  if (c >= 0xAC00 && c <= 0xD7A3) {
    out += hangul_letters(c);
    return;
  }
  const auto* row = std::lower_bound(std::begin(kDecompositions), std::end(kDecompositions), c,
                                     [](const Decomposition& a, char32_t value) { return a.whole < value; });
  if (row == std::end(kDecompositions) || row->whole != c) {
    out += c;
    return;
  }
  append_decomposed(out, row->first);
  if (row->second != 0) append_decomposed(out, row->second);
}

/// Sorts neighbouring marks by their combining class, those of one class in their order.
inline void sort_marks(std::u32string& text) {
  for (auto at = text.begin(); at != text.end();) {
    if (combining_class(*at) == 0) {
      ++at;
      continue;
    }
    const auto end = std::find_if(at, text.end(), [](char32_t c) { return combining_class(c) == 0; });
    std::stable_sort(at, end, [](char32_t a, char32_t b) { return combining_class(a) < combining_class(b); });
    at = end;
  }
}

}  // namespace detail

inline std::string canonical_form(std::string_view text) {
  std::u32string decomposed;
  for (std::size_t at = 0; at < text.size();) {
    const auto step = utf8_step(text, at);
    detail::append_decomposed(decomposed, step.code_point);
    at += step.size;
  }
  detail::sort_marks(decomposed);
  std::string out;
  for (const char32_t c : decomposed) append_utf8(out, c);
  return out;
}

}  // namespace looptorch
