// SPDX-License-Identifier: MIT
// Converts numbers and bytes to lower-case hexadecimal digits and back. Reading accepts no other spelling.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/json/json.hpp>

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

namespace looptorch::detail {

/// Returns 16 digits.
[[nodiscard]] inline std::string hex_of(std::uint64_t value) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(value));
  return text;
}

/// Parses the text of hex_of. Throws JsonError for any other text.
[[nodiscard]] inline std::uint64_t parse_hex(std::string_view text) {
  std::uint64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value, 16);
  if (hex_of(value) != text) throw JsonError(message("\"", text, "\" is not 16 hexadecimal digits"));
  return value;
}

[[nodiscard]] inline std::string hex_of_bytes(std::string_view bytes) {
  static constexpr std::string_view kDigits = "0123456789abcdef";
  std::string hex;
  for (const char byte : bytes) {
    const auto value = static_cast<unsigned char>(byte);
    hex.append({kDigits[value >> 4], kDigits[value & 15]});
  }
  return hex;
}

/// Parses the text of hex_of_bytes. Throws JsonError for any other text.
[[nodiscard]] inline std::string bytes_of_hex(std::string_view hex) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
    unsigned value = 0;
    std::from_chars(hex.data() + i, hex.data() + i + 2, value, 16);
    bytes.push_back(static_cast<char>(value));
  }
  if (hex_of_bytes(bytes) != hex) throw JsonError(message("\"", hex, "\" is not bytes in hexadecimal"));
  return bytes;
}

}  // namespace looptorch::detail
