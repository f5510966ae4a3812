// SPDX-License-Identifier: MIT
// Converts words of a command line to typed values, checks the ranges of numbers, and formats flags and
// defaults for --help.
#pragma once

#include <looptorch/base/error.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

namespace looptorch::app {

/// Thrown for a flag that is unknown, lacks its value, has a wrong one, or is required but absent. The
/// message names flag and value.
struct CommandLineError : Error {
  using Error::Error;
};

/// The range of a number, both ends included. `above` excludes its end: `{.above = 0}` for a learning rate.
struct NumberRange {
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  double above = -std::numeric_limits<double>::infinity();
};

/// The types of numbers that flags have.
template <class T>
concept FlagNumber = std::is_same_v<T, std::int64_t> || std::is_same_v<T, double>;

/// Returns the number that `text` is. Throws CommandLineError if `text` is anything else, not finite, or
/// outside `range`.
template <FlagNumber T>
[[nodiscard]] T parse_number(const std::string& text, const NumberRange& range = {}) {
  T number{};
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (code != std::errc{} || end != text.data() + text.size() ||
      !std::isfinite(static_cast<double>(number))) {
    throw CommandLineError(
        message("\"", text, std::is_integral_v<T> ? "\" is not an integer" : "\" is not a number"));
  }
  const auto value = static_cast<double>(number);
  if (value <= range.above) throw CommandLineError(message(text, " is not above ", range.above));
  if (value < range.min) throw CommandLineError(message(text, " is less than ", range.min));
  if (value > range.max) throw CommandLineError(message(text, " is more than ", range.max));
  return number;
}

namespace detail {

template <FlagNumber T>
void parse_value(const std::string& text, const NumberRange& range, T& out) {
  out = parse_number<T>(text, range);
}
template <FlagNumber T>
void parse_value(const std::string& text, const NumberRange& range, std::optional<T>& out) {
  out = parse_number<T>(text, range);
}
inline void parse_value(const std::string& text, const NumberRange&, std::string& out) { out = text; }
inline void parse_value(const std::string& text, const NumberRange&, std::filesystem::path& out) {
  out = text;
}
inline void parse_value(const std::string& text, const NumberRange&, std::vector<std::string>& out) {
  out.push_back(text);  // a flag that may be given several times
}

template <FlagNumber T>
[[nodiscard]] std::string value_text(T value) {
  const std::string text = message(value);
  if constexpr (std::is_floating_point_v<T>) {  // else a file of flags would have another number
    if (std::isfinite(value) && parse_number<T>(text) != value) {
      char exact[32];
      return {exact, std::to_chars(exact, exact + sizeof exact, value).ptr};
    }
  }
  return text;
}
template <FlagNumber T>
[[nodiscard]] std::string value_text(const std::optional<T>& value) {
  return value ? value_text(*value) : "";
}
[[nodiscard]] inline std::string value_text(const std::string& value) { return value; }
[[nodiscard]] inline std::string value_text(const std::filesystem::path& value) { return value.string(); }
[[nodiscard]] inline std::string value_text(const std::vector<std::string>& values) {
  std::string text;
  for (const auto& value : values) text += (text.empty() ? "" : ", ") + value;
  return text;
}

/// Returns the default that --help appends to a flag's text; nothing for an empty value.
[[nodiscard]] inline std::string default_text(const std::string& value) {
  return value.empty() ? "" : " [" + value + "]";
}

/// Returns a line for each row, the right column aligned.
[[nodiscard]] inline std::string two_columns(const std::vector<std::pair<std::string, std::string>>& rows) {
  std::size_t width = 0;
  for (const auto& row : rows) width = std::max(width, row.first.size());
  std::string text;
  for (const auto& [left, right] : rows)
    text += "  " + left + std::string(width + 2 - left.size(), ' ') + right + "\n";
  return text;
}

}  // namespace detail
}  // namespace looptorch::app
