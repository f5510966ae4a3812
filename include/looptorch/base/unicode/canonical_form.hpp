// SPDX-License-Identifier: MIT
// Converts text to Unicode's normal form D, in which two spellings of one text agree, such as "é" as one
// character or as "e" with an accent. Takes linear time, with one or two table look-ups for each character
// beyond ASCII.
#pragma once

#include <looptorch/base/text/utf8.hpp>
#include <looptorch/base/unicode/canonical_tables.hpp>

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

namespace looptorch {

/// Returns the text in normal form D (UAX #15). Two texts are canonically equivalent exactly if the results
/// are equal. Bytes that are not UTF-8 become U+FFFD.
[[nodiscard]] std::string canonical_form(std::string_view text);

namespace detail {

/// Returns the last row, in a table of rows of three, whose first entry is at most `c`; null if none is.
[[nodiscard]] inline const char32_t* row_of(std::u32string_view table, char32_t c) {
  std::size_t begin = 0, end = table.size() / 3;
  while (begin < end) {
    const std::size_t middle = (begin + end) / 2;
    table[3 * middle] <= c ? begin = middle + 1 : end = middle;
  }
  return begin > 0 ? &table[3 * (begin - 1)] : nullptr;
}

[[nodiscard]] inline char32_t combining_class(char32_t c) {
  const char32_t* row = row_of(kCombiningClasses, c);
  return row && c <= row[1] ? row[2] : 0;
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
  if (c >= 0xAC00 && c <= 0xD7A3) return void(out += hangul_letters(c));
  if (c - 0xF900 < kIdeographsFromF900.size()) return void(out += kIdeographsFromF900[c - 0xF900]);
  if (c - 0x2F800 < kIdeographsFrom2F800.size()) return void(out += kIdeographsFrom2F800[c - 0x2F800]);
  const char32_t* row = row_of(kDecompositions, c);
  if (!row || row[0] != c) return void(out += c);
  append_decomposed(out, row[1]);
  if (row[2] != 0) append_decomposed(out, row[2]);
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

/// Returns the text's characters in normal form D.
[[nodiscard]] inline std::u32string decomposed(std::string_view text) {
  std::u32string out;
  for (std::size_t at = 0; at < text.size();) {
    const auto step = utf8_step(text, at);
    append_decomposed(out, step.code_point);
    at += step.size;
  }
  sort_marks(out);
  return out;
}

}  // namespace detail

inline std::string canonical_form(std::string_view text) {
  std::string out;
  for (const char32_t c : detail::decomposed(text)) append_utf8(out, c);
  return out;
}

}  // namespace looptorch
