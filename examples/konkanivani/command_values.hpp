// SPDX-License-Identifier: MIT
// The words of a command line as values: types, ranges, and what --help says of a default. Include
// command_line.hpp.
#pragma once

#include <looptorch/base/error.hpp>

#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>
#include <type_traits>

namespace konkanivani {

/// A flag that is unknown, misses its value, has a wrong one, or is required and absent; names flag and
/// value.
struct CommandLineError : looptorch::Error {
  using Error::Error;
};

/// The range of a number, both ends included. `above` excludes its end: `{.above = 0}` for a learning rate.
struct NumberRange {
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  double above = -std::numeric_limits<double>::infinity();
};

namespace detail {

inline void parse_value(const std::string& text, const NumberRange&, std::string& out) { out = text; }
inline void parse_value(const std::string& text, const NumberRange&, std::filesystem::path& out) {
  out = text;
}

template <class T>
concept Number = std::is_same_v<T, std::int64_t> || std::is_same_v<T, double>;

template <Number T>
void parse_value(const std::string& text, const NumberRange& range, T& out) {
  using looptorch::message;
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
  out = number;
}

inline std::string default_text(const std::string& value) { return value.empty() ? "" : " [" + value + "]"; }
inline std::string default_text(const std::filesystem::path& value) { return default_text(value.string()); }

template <Number T>
std::string default_text(T value) {
  return looptorch::message(" [", value, "]");
}

inline std::string pad(std::string text, std::size_t width) {
  if (text.size() < width) text.resize(width, ' ');
  return text;
}

inline std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

}  // namespace detail

}  // namespace konkanivani
