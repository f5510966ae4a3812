// SPDX-License-Identifier: MIT
// Reads bytes and 64-bit numbers that JSON texts hold as hexadecimal digits, since JSON has no types for
// them.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/json/json.hpp>
#include <looptorch/base/text/hex.hpp>

#include <cstdint>
#include <string>
#include <utility>

namespace looptorch::detail {

/// Reads a string written by `hex_of`. Throws JsonError.
[[nodiscard]] inline std::uint64_t number_from_hex(const Json& json) {
  const auto& text = json.as_string();
  if (const auto value = number_of_hex(text)) return *value;
  throw JsonError(message("\"", text, "\" is not 16 hexadecimal digits"));
}

/// Reads a string written by `hex_of_bytes`. Throws JsonError.
[[nodiscard]] inline std::string bytes_from_hex(const Json& json) {
  const auto& hex = json.as_string();
  if (auto bytes = bytes_of_hex(hex)) return *std::move(bytes);
  throw JsonError(message("\"", hex, "\" is not bytes in hexadecimal"));
}

}  // namespace looptorch::detail
