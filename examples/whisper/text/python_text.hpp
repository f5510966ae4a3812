// SPDX-License-Identifier: MIT
// Formats texts and numbers as Python's functions do, such as strip, round and repr, so that transcript files
// equal those of openai-whisper, byte for byte.
#pragma once

#include <looptorch/base/text/utf8.hpp>
#include <looptorch/metrics/unicode/white_space.hpp>

#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

namespace whisper {

/// Returns `text`, which is UTF-8, without white space at its ends: `str.strip()`.
inline std::string_view stripped(std::string_view text) { return looptorch::strip_white_space(text); }

/// Returns the number of characters of UTF-8: `len(str)`.
inline std::size_t character_count(std::string_view text) {
  std::size_t count = 0;
  for (std::size_t at = 0; at < text.size(); ++count) at += looptorch::utf8_step(text, at).size;
  return count;
}

/// Returns `text` with each `from` replaced by `to`.
inline std::string replaced(std::string_view text, std::string_view from, std::string_view to) {
  std::string result;
  for (std::size_t at; (at = text.find(from)) != std::string_view::npos; text.remove_prefix(at + from.size()))
    result.append(text.substr(0, at)).append(to);
  return result.append(text);
}

/// Returns the number with two decimals, rounded as `round(value, 2)` does.
inline double rounded_to_hundredths(double value) {
  std::array<char, 352> text;
  std::snprintf(text.data(), text.size(), "%.2f", value);
  return std::strtod(text.data(), nullptr);
}

/// Returns the shortest text of a finite number that reads back equal: `repr(float)`.
inline std::string float_text(double value) {
  const double size = std::abs(value);
  const bool plain = size == 0 || (size >= 1e-4 && size < 1e16);
  std::array<char, 32> digits;
  const auto format = plain ? std::chars_format::fixed : std::chars_format::scientific;
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value, format).ptr;
  std::string text(digits.data(), end);
  if (plain && text.find('.') == std::string::npos) text += ".0";
  return text;
}

/// Returns UTF-8 as a JSON string of ASCII: `json.dumps(str)`.
inline std::string ascii_json(std::string_view text) {
  constexpr std::string_view kNames = "\"\\bfnrt", kValues = "\"\\\b\f\n\r\t";
  std::string json = "\"";
  const auto put_unit = [&](unsigned unit) {
    std::array<char, 8> escape;
    std::snprintf(escape.data(), escape.size(), "\\u%04x", unit);
    json += escape.data();
  };
  for (std::size_t at = 0; at < text.size();) {
    const auto [c, size, valid] = looptorch::utf8_step(text, at);
    at += size;
    const auto which = c < 0x80 ? kValues.find(static_cast<char>(c)) : std::string_view::npos;
    if (which != std::string_view::npos) {
      json.append({'\\', kNames[which]});
    } else if (c >= 0x20 && c < 0x7F) {
      json += static_cast<char>(c);
    } else if (c < 0x10000) {
      put_unit(static_cast<unsigned>(c));
    } else {
      put_unit(0xD800 + static_cast<unsigned>((c - 0x10000) >> 10));
      put_unit(0xDC00 + static_cast<unsigned>((c - 0x10000) & 0x3FF));
    }
  }
  return json + '"';
}

}  // namespace whisper
