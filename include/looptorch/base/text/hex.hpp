// SPDX-License-Identifier: MIT
// Converts numbers and bytes to lower-case hexadecimal digits and back. Reading accepts no other spelling.
#pragma once

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace looptorch {

/// Returns the 16 digits of a number, such as a `stable_hash` that names a file.
[[nodiscard]] inline std::string hex_of(std::uint64_t value) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(value));
  return text;
}

/// Returns the number whose `hex_of` is `text`, if there is one.
[[nodiscard]] inline std::optional<std::uint64_t> number_of_hex(std::string_view text) {
  std::uint64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value, 16);
  return hex_of(value) == text ? std::optional(value) : std::nullopt;
}

/// Returns two digits a byte.
[[nodiscard]] inline std::string hex_of_bytes(std::string_view bytes) {
  static constexpr std::string_view kDigits = "0123456789abcdef";
  std::string hex;
  for (const char byte : bytes) {
    const auto value = static_cast<unsigned char>(byte);
    hex.append({kDigits[value >> 4], kDigits[value & 15]});
  }
  return hex;
}

/// Returns the bytes whose `hex_of_bytes` is `hex`, if there are any.
[[nodiscard]] inline std::optional<std::string> bytes_of_hex(std::string_view hex) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
    unsigned value = 0;
    std::from_chars(hex.data() + i, hex.data() + i + 2, value, 16);
    bytes.push_back(static_cast<char>(value));
  }
  return hex_of_bytes(bytes) == hex ? std::optional(std::move(bytes)) : std::nullopt;
}

}  // namespace looptorch
