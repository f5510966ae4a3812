// SPDX-License-Identifier: MIT
// Converts text to Unicode's normal form C, in which most texts are written: "e" with an accent becomes one
// character. Use it for texts that are compared or counted character by character. Linear, with three
// look-ups in tables for each character beyond ASCII; ASCII is copied.
#pragma once

#include <looptorch/base/text/utf8.hpp>
#include <looptorch/base/unicode/canonical_form.hpp>
#include <looptorch/base/unicode/canonical_tables.hpp>

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace looptorch {

/// Returns the text in normal form C (UAX #15). Two texts are canonically equivalent exactly if the results
/// are equal. Bytes that are not UTF-8 become U+FFFD.
[[nodiscard]] std::string composed_form(std::string_view text);

namespace detail {

/// True for characters that Unicode excludes from composition: the text holds their parts.
[[nodiscard]] constexpr bool is_never_composed(char32_t c) {
  constexpr std::pair<char32_t, char32_t> kExcluded[] = {
      {0x344, 0x344}, {0x958, 0x95F},   {0x9DC, 0x9DF},   {0xA33, 0xA5E},    {0xB5C, 0xB5D},
      {0xF43, 0xFB9}, {0x2ADC, 0x2ADC}, {0xFB1D, 0xFB4E}, {0x1D15E, 0x1D1C0}};
  return std::ranges::any_of(kExcluded,
                             [c](const auto& range) { return c >= range.first && c <= range.second; });
}

struct Composition {
  char32_t first, second, composed;
};

/// Returns the compositions of two characters, sorted by the two.
[[nodiscard]] inline const std::vector<Composition>& compositions() {
  constexpr auto by_parts = [](const Composition& a, const Composition& b) {
    return std::pair(a.first, a.second) < std::pair(b.first, b.second);
  };
  static const std::vector<Composition> kAll = [&] {
    std::vector<Composition> all;
    for (std::size_t i = 0; i < kDecompositions.size(); i += 3)
      if (kDecompositions[i + 2] != 0 && !is_never_composed(kDecompositions[i]))
        all.push_back({kDecompositions[i + 1], kDecompositions[i + 2], kDecompositions[i]});
    std::sort(all.begin(), all.end(), by_parts);
    return all;
  }();
  return kAll;
}

/// Returns the Hangul syllable of two letters, or of a syllable and its last letter; 0 if there is none.
[[nodiscard]] constexpr char32_t hangul_of(char32_t first, char32_t second) {
  constexpr char32_t kVowels = 21, kEndings = 28, kSyllables = 19 * kVowels * kEndings;
  if (first - 0x1100 < 19 && second - 0x1161 < kVowels)
    return 0xAC00 + ((first - 0x1100) * kVowels + second - 0x1161) * kEndings;
  const bool is_open = first - 0xAC00 < kSyllables && (first - 0xAC00) % kEndings == 0;
  return is_open && second > 0x11A7 && second < 0x11A7 + kEndings ? first + second - 0x11A7 : 0;
}

/// Returns the character that two compose to; 0 if there is none.
[[nodiscard]] inline char32_t composition_of(char32_t first, char32_t second) {
  if (const char32_t syllable = hangul_of(first, second)) return syllable;
  const auto& all = compositions();
  const auto at = std::ranges::lower_bound(all, std::pair(first, second), {}, [](const Composition& each) {
    return std::pair(each.first, each.second);
  });
  return at != all.end() && at->first == first && at->second == second ? at->composed : 0;
}

/// Composes decomposed text in place.
inline void compose(std::u32string& text) {
  std::size_t size = 0, starter = text.size();  // of the composed text, and its last character of class 0
  for (const char32_t c : std::u32string(text)) {
    const char32_t own = combining_class(c);
    const bool is_next = starter + 1 == size;
    const bool is_free = is_next || (starter < size && combining_class(text[size - 1]) < own);
    const char32_t composed = starter < size && is_free ? composition_of(text[starter], c) : 0;
    if (composed != 0) {
      text[starter] = composed;
      continue;
    }
    if (own == 0) starter = size;
    text[size++] = c;
  }
  text.resize(size);
}

}  // namespace detail

inline std::string composed_form(std::string_view text) {
  if (std::ranges::all_of(text, [](char c) { return static_cast<unsigned char>(c) < 0x80; }))
    return std::string(text);
  std::u32string characters = detail::decomposed(text);
  detail::compose(characters);
  std::string out;
  for (const char32_t c : characters) append_utf8(out, c);
  return out;
}

}  // namespace looptorch
