// SPDX-License-Identifier: MIT
// Holds glyphs of 5 x 7 pixels for the labels of charts.
#pragma once

#include <array>
#include <cstdint>
#include <utility>

namespace looptorch::app {

inline constexpr std::int64_t kGlyphWidth = 5, kGlyphHeight = 7;

/// A glyph's pixels: 35 bits, row by row, the highest bit top left.
using Glyph = std::uint64_t;

// clang-format off
inline constexpr std::array<std::pair<char, Glyph>, 49> kGlyphs{{
    {' ', 0x000000000}, {'0', 0x3A33AE62E}, {'1', 0x11842108E}, {'2', 0x3A211111F}, {'3', 0x7C441062E},
    {'4', 0x08CA97C42}, {'5', 0x7E1E0862E}, {'6', 0x1910F462E}, {'7', 0x7C2222108}, {'8', 0x3A317462E},
    {'9', 0x3A317844C}, {'.', 0x00000018C}, {',', 0x000003088}, {':', 0x018C03180}, {'-', 0x0000F8000},
    {'+', 0x0084F9080}, {'_', 0x00000001F}, {'/', 0x042222210}, {'(', 0x088842082}, {')', 0x208210888},
    {'%', 0x632222263}, {'=', 0x001F07C00}, {'?', 0x3A2111004}, {'a', 0x000E0BE2F}, {'b', 0x4216CC63E},
    {'c', 0x000E8422E}, {'d', 0x042D9C62F}, {'e', 0x000E8FE0E}, {'f', 0x1928E2108}, {'g', 0x01F18BC2E},
    {'h', 0x4216CC631}, {'i', 0x100C2108E}, {'j', 0x080610A4C}, {'k', 0x4212A6292}, {'l', 0x30842108E},
    {'m', 0x001AAD631}, {'n', 0x0016CC631}, {'o', 0x000E8C62E}, {'p', 0x001E8FA10}, {'q', 0x000D9BC21},
    {'r', 0x0016CC210}, {'s', 0x000E8383E}, {'t', 0x211C42126}, {'u', 0x00118C66D}, {'v', 0x00118C544},
    {'w', 0x00118D6AA}, {'x', 0x001151151}, {'y', 0x00118BC2E}, {'z', 0x001F1111F}}};
// clang-format on

/// Returns the glyph of a character: of A to Z the small letter, of one that is not here a question mark.
[[nodiscard]] constexpr Glyph glyph_of(char character) {
  if (character >= 'A' && character <= 'Z') character = static_cast<char>(character - 'A' + 'a');
  Glyph unknown = 0;
  for (const auto& [known, glyph] : kGlyphs) {
    if (known == character) return glyph;
    if (known == '?') unknown = glyph;
  }
  return unknown;
}

}  // namespace looptorch::app
