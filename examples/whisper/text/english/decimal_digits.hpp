// SPDX-License-Identifier: MIT
// Adds numbers of any length, and multiplies them by powers of ten, as strings of decimal digits: the
// arithmetic for writing spoken numbers as digits. Takes linear time.
#pragma once

#include <looptorch/base/text/utf8.hpp>

#include "text_patterns.hpp"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace whisper::detail {

/// Returns the digits without leading zeros; "0" for zero.
[[nodiscard]] inline std::string without_leading_zeros(std::string digits) {
  const auto first = digits.find_first_not_of('0');
  return first == std::string::npos ? "0" : digits.substr(first);
}

[[nodiscard]] inline std::string power_of_ten(int exponent) {
  std::string digits(static_cast<std::size_t>(exponent) + 1, '0');
  digits.front() = '1';
  return digits;
}

[[nodiscard]] inline std::string add_digits(std::string a, std::string b) {
  if (a.size() < b.size()) std::swap(a, b);
  b.insert(0, a.size() - b.size(), '0');
  int carry = 0;
  for (auto i = a.size(); i-- > 0;) {
    carry += (a[i] - '0') + (b[i] - '0');
    a[i] = static_cast<char>('0' + carry % 10);
    carry /= 10;
  }
  if (carry) a.insert(0, 1, '1');
  return a;
}

/// Multiplies the part below the thousands: 5300 and "thousand" become 5000 + 300 thousand.
[[nodiscard]] inline std::string multiply_below_thousand(const std::string& digits, int exponent) {
  const auto split = digits.size() - std::min<std::size_t>(digits.size(), 3);
  const auto zeros = std::string(static_cast<std::size_t>(exponent), '0');
  return without_leading_zeros(add_digits(digits.substr(0, split) + "000", digits.substr(split) + zeros));
}

/// Returns a decimal fraction times a power of ten. Empty if that is not an integer, or if `text` is not a
/// fraction ("1.2.3"). Digits may be of any script.
[[nodiscard]] inline std::optional<std::string> scale_decimal(std::string_view text, int exponent) {
  std::string whole, part;
  bool has_point = false;
  for (std::size_t at = 0; at < text.size();) {
    const auto step = looptorch::utf8_step(text, at);
    const int digit = digit_value(step.code_point);
    const bool is_point = step.code_point == U'.';
    if (digit < 0 && (!is_point || has_point)) return std::nullopt;
    has_point = has_point || is_point;
    if (!is_point) (has_point ? part : whole) += static_cast<char>('0' + digit);
    at += step.size;
  }
  if (whole.empty() && part.empty()) return std::nullopt;
  part.resize(std::max(part.size(), static_cast<std::size_t>(exponent)), '0');
  const auto moved = static_cast<std::size_t>(exponent);
  if (part.find_first_not_of('0', moved) != std::string::npos) return std::nullopt;
  return without_leading_zeros(whole + part.substr(0, moved));
}

/// True if the text matches \d+(\.\d+)?.
[[nodiscard]] inline bool is_decimal_number(std::string_view text) {
  const bool is_open = text.starts_with('.') || text.ends_with('.');
  return !is_open && scale_decimal(text, static_cast<int>(text.size())).has_value();
}

}  // namespace whisper::detail
