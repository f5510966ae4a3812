// SPDX-License-Identifier: MIT
// A minimal text normaliser for error rates: lower case, no punctuation, single blanks. It keeps combining
// marks, so that Devanagari's vowel signs survive (Whisper's basic normaliser strips them), and apostrophes
// inside words. Case of Latin (European languages and Vietnamese), Greek and Cyrillic; letters of other
// scripts pass as they are.
#pragma once

#include <looptorch/state/utf8.hpp>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <string>
#include <string_view>

namespace looptorch {

/// Lower-cased words without punctuation, separated by single blanks, without any at the ends. Punctuation
/// separates words ("left-right" becomes two); an apostrophe between letters is kept, as "'". What is not
/// UTF-8 becomes U+FFFD.
[[nodiscard]] std::string normalize_text(std::string_view text);

/// Lower case of a character, by simple case mapping; one of another script comes back as it is.
[[nodiscard]] constexpr char32_t to_lower(char32_t c);

/// Whether the normaliser takes a character for white space, punctuation or a symbol, and not for part of a
/// word.
[[nodiscard]] bool is_separator(char32_t c);

namespace detail {

struct CharacterRange {
  char32_t first, last;
};

/// General_Category P, S, Z and C of the blocks that transcripts use, without the joiners that spelling
/// needs.
inline constexpr CharacterRange kSeparators[] = {
    {0x00, 0x2F},     {0x3A, 0x40},      {0x5B, 0x60},     {0x7B, 0xA9},     {0xAB, 0xB1},
    {0xB4, 0xB4},     {0xB6, 0xB8},      {0xBB, 0xBB},     {0xBF, 0xBF},     {0xD7, 0xD7},
    {0xF7, 0xF7},     {0x37E, 0x37E},    {0x387, 0x387},   {0x55A, 0x55F},   {0x589, 0x58A},
    {0x5BE, 0x5BE},   {0x5C0, 0x5C0},    {0x5C3, 0x5C3},   {0x5F3, 0x5F4},   {0x600, 0x60F},
    {0x61B, 0x61F},   {0x66A, 0x66D},    {0x6D4, 0x6D4},   {0x964, 0x965},   {0x970, 0x970},
    {0xDF4, 0xDF4},   {0xE4F, 0xE4F},    {0xE5A, 0xE5B},   {0x1680, 0x1680}, {0x2000, 0x200B},
    {0x200E, 0x206F}, {0x207A, 0x207E},  {0x208A, 0x208E}, {0x20A0, 0x20CF}, {0x2190, 0x245F},
    {0x2500, 0x2BFF}, {0x2E00, 0x2E7F},  {0x3000, 0x3004}, {0x3008, 0x3020}, {0x3030, 0x3030},
    {0x303D, 0x303D}, {0x30A0, 0x30A0},  {0x30FB, 0x30FB}, {0xFE10, 0xFE1F}, {0xFE30, 0xFE6F},
    {0xFEFF, 0xFEFF}, {0xFF01, 0xFF0F},  {0xFF1A, 0xFF20}, {0xFF3B, 0xFF40}, {0xFF5B, 0xFF65},
    {0xFFE0, 0xFFEE}, {0x1F000, 0x1FAFF}};

[[nodiscard]] constexpr bool is_between(char32_t c, char32_t first, char32_t last) {
  return c >= first && c <= last;
}

/// Letters that come in pairs, the capital first: on even code points, or on odd ones.
[[nodiscard]] constexpr bool is_paired_capital(char32_t c) {
  constexpr CharacterRange kOdd[] = {
      {0x139, 0x148}, {0x179, 0x17E}, {0x1AF, 0x1B0}, {0x1CD, 0x1DC}, {0x4C1, 0x4CE}};
  constexpr CharacterRange kEven[] = {{0x100, 0x12F},   {0x132, 0x137},  {0x14A, 0x177}, {0x1A0, 0x1A5},
                                      {0x1F8, 0x21F},   {0x460, 0x481},  {0x48A, 0x4BF}, {0x4D0, 0x52F},
                                      {0x1E00, 0x1E95}, {0x1EA0, 0x1EFF}};
  for (const auto& [first, last] : kOdd) {
    if (is_between(c, first, last)) return c % 2 == 1;
  }
  for (const auto& [first, last] : kEven) {
    if (is_between(c, first, last)) return c % 2 == 0;
  }
  return false;
}

/// What leaves no trace: soft hyphen, word joiner, byte order mark, variation selectors.
[[nodiscard]] constexpr bool is_ignorable(char32_t c) {
  return c == 0xAD || c == 0x2060 || c == 0xFEFF || is_between(c, 0xFE00, 0xFE0F);
}

/// Part of a spelling inside a word, of an emoji elsewhere.
[[nodiscard]] constexpr bool is_joiner(char32_t c) { return c == 0x200C || c == 0x200D; }

[[nodiscard]] constexpr bool is_apostrophe(char32_t c) { return c == U'\'' || c == U'\u2019'; }

}  // namespace detail

constexpr char32_t to_lower(char32_t c) {
  using detail::is_between;
  if (is_between(c, U'A', U'Z') || (is_between(c, 0xC0, 0xDE) && c != 0xD7)) {
    return c + 0x20;  // ASCII, Latin-1
    if (c < 0x100) return c;
  }
  if (c == 0x130) return U'i';                                     // I with dot
  if (c == 0x178) return 0xFF;                                     // Y with diaeresis
  if (is_between(c, 0x391, 0x3AB) && c != 0x3A2) return c + 0x20;  // Greek
  if (c == 0x386) return 0x3AC;                                    // Greek with tonos
  if (is_between(c, 0x388, 0x38A)) return c + 0x25;
  if (c == 0x38C) return 0x3CC;
  if (c == 0x38E || c == 0x38F) return c + 0x3F;
  if (is_between(c, 0x410, 0x42F)) return c + 0x20;  // Cyrillic
  if (is_between(c, 0x400, 0x40F)) return c + 0x50;
  if (c == 0x4C0) return 0x4CF;
  return detail::is_paired_capital(c) ? c + 1 : c;
}

inline bool is_separator(char32_t c) {
  const auto* after = std::upper_bound(std::begin(detail::kSeparators), std::end(detail::kSeparators), c,
                                       [](char32_t value, const auto& range) { return value < range.first; });
  return after != std::begin(detail::kSeparators) && c <= std::prev(after)->last;
}

inline std::string normalize_text(std::string_view text) {
  std::string out;
  char between = '\0';  // what parts the last word character from the next one, if anything does
  for (std::size_t at = 0; at < text.size();) {
    const auto [c, size, valid] = utf8_step(text, at);
    at += size;
    const bool is_inside = !out.empty() && between == '\0';
    if (detail::is_ignorable(c) || (detail::is_joiner(c) && !is_inside)) continue;
    if (is_separator(c)) {
      between = is_inside && detail::is_apostrophe(c) ? '\'' : ' ';
      continue;
    }
    if (!out.empty() && between != '\0') out += between;
    between = '\0';
    append_utf8(out, to_lower(c));
  }
  return out;
}

}  // namespace looptorch
