// SPDX-License-Identifier: MIT
// Reads, checks and writes UTF-8 by RFC 3629: no overlong forms, no surrogates, nothing beyond U+10FFFF.
// Linear; reading and checking allocate nothing.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace looptorch {

/// One step through UTF-8 text: the character and its number of bytes.
struct Utf8Step {
  char32_t code_point = 0;  ///< U+FFFD if the bytes are not UTF-8.
  std::size_t size = 0;     ///< For a fault: the longest valid start of a character, at least 1.
  bool valid = false;
};

/// Reads the character at `offset`, which must be less than `text.size()`. Stepping over faults by `size`
/// yields one U+FFFD for each maximal ill-formed part, as Unicode recommends and as Python's and Rust's
/// decoders do.
[[nodiscard]] constexpr Utf8Step utf8_step(std::string_view text, std::size_t offset);

/// Returns the offset of the first byte that is not UTF-8, or `npos`.
[[nodiscard]] constexpr std::size_t find_invalid_utf8(std::string_view text);

/// Returns the text with U+FFFD for each fault.
[[nodiscard]] std::string replace_invalid_utf8(std::string_view text);

/// Appends a code point, which must be a Unicode scalar value.
void append_utf8(std::string& out, char32_t code_point);

namespace detail {

/// The bytes that may follow a lead byte: how many, and the bounds of the first (RFC 3629, section 4).
struct Utf8Lead {
  std::size_t trailing;
  unsigned char first_min, first_max;
};

[[nodiscard]] constexpr Utf8Lead utf8_lead(unsigned char lead) {
  if (lead >= 0xC2 && lead <= 0xDF) return {1, 0x80, 0xBF};
  if (lead >= 0xE0 && lead <= 0xEF) {
    return {2, static_cast<unsigned char>(lead == 0xE0 ? 0xA0 : 0x80),
            static_cast<unsigned char>(lead == 0xED ? 0x9F : 0xBF)};
  }
  if (lead >= 0xF0 && lead <= 0xF4) {
    return {3, static_cast<unsigned char>(lead == 0xF0 ? 0x90 : 0x80),
            static_cast<unsigned char>(lead == 0xF4 ? 0x8F : 0xBF)};
  }
  return {0, 0, 0};
}

}  // namespace detail

constexpr Utf8Step utf8_step(std::string_view text, std::size_t offset) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[offset + i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return {lead, 1, true};
  const auto [trailing, first_min, first_max] = detail::utf8_lead(lead);
  if (trailing == 0) return {U'\uFFFD', 1, false};
  char32_t code_point = lead & (0x3Fu >> trailing);
  for (std::size_t i = 1; i <= trailing; ++i) {
    const bool ends = offset + i >= text.size();
    if (ends || byte(i) < (i == 1 ? first_min : 0x80) || byte(i) > (i == 1 ? first_max : 0xBF)) {
      return {U'\uFFFD', i, false};
    }
    code_point = code_point << 6 | (byte(i) & 0x3Fu);
  }
  return {code_point, trailing + 1, true};
}

constexpr std::size_t find_invalid_utf8(std::string_view text) {
  for (std::size_t offset = 0; offset < text.size();) {
    const auto step = utf8_step(text, offset);
    if (!step.valid) return offset;
    offset += step.size;
  }
  return std::string_view::npos;
}

inline void append_utf8(std::string& out, char32_t code_point) {
  const auto put = [&](char32_t bits) { out.push_back(static_cast<char>(bits)); };
  const auto trail = [&](int shift) { put(0x80 | (code_point >> shift & 0x3F)); };
  if (code_point < 0x80) {
    put(code_point);
  } else if (code_point < 0x800) {
    put(0xC0 | code_point >> 6), trail(0);
  } else if (code_point < 0x10000) {
    put(0xE0 | code_point >> 12), trail(6), trail(0);
  } else {
    put(0xF0 | code_point >> 18), trail(12), trail(6), trail(0);
  }
}

inline std::string replace_invalid_utf8(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const auto step = utf8_step(text, at);
    append_utf8(out, step.code_point);
    at += step.size;
  }
  return out;
}

}  // namespace looptorch
