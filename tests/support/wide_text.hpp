// SPDX-License-Identifier: MIT
// Encodes text in UTF-16 and UTF-32, as Windows programs write it.
#pragma once

#include <string>
#include <string_view>

namespace looptorch::testing {

/// Returns units of `bytes` bytes each.
inline std::string in_units(std::u32string_view text, int bytes, bool big_endian) {
  std::string out;
  for (const char32_t c : text)
    for (int i = 0; i < bytes; ++i)
      out += static_cast<char>(c >> 8 * (big_endian ? bytes - 1 - i : i) & 0xFF);
  return out;
}

/// Returns characters below U+10000 in UTF-16.
inline std::string in_utf16(std::u32string_view text, bool big_endian) {
  return in_units(text, 2, big_endian);
}

inline std::string in_utf32(std::u32string_view text, bool big_endian) {
  return in_units(text, 4, big_endian);
}

}  // namespace looptorch::testing
