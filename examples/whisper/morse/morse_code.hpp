// SPDX-License-Identifier: MIT
// Converts text to International Morse code (ITU-R M.1677-1): the times at which the key is down. A speed is
// in words a minute; the word is PARIS with the gap after it, which last as long as 50 dots.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/random.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace morse {

/// Thrown for a text that cannot be keyed, and for a speed or jitter out of range.
struct MorseError : looptorch::Error {
  using Error::Error;
};

namespace detail {

inline constexpr std::array<std::pair<char, std::string_view>, 49> kCode{{
    {'a', ".-"},     {'b', "-..."},   {'c', "-.-."},   {'d', "-.."},    {'e', "."},       {'f', "..-."},
    {'g', "--."},    {'h', "...."},   {'i', ".."},     {'j', ".---"},   {'k', "-.-"},     {'l', ".-.."},
    {'m', "--"},     {'n', "-."},     {'o', "---"},    {'p', ".--."},   {'q', "--.-"},    {'r', ".-."},
    {'s', "..."},    {'t', "-"},      {'u', "..-"},    {'v', "...-"},   {'w', ".--"},     {'x', "-..-"},
    {'y', "-.--"},   {'z', "--.."},   {'0', "-----"},  {'1', ".----"},  {'2', "..---"},   {'3', "...--"},
    {'4', "....-"},  {'5', "....."},  {'6', "-...."},  {'7', "--..."},  {'8', "---.."},   {'9', "----."},
    {'.', ".-.-.-"}, {',', "--..--"}, {':', "---..."}, {'?', "..--.."}, {'\'', ".----."}, {'-', "-....-"},
    {'/', "-..-."},  {'(', "-.--."},  {')', "-.--.-"}, {'"', ".-..-."}, {'=', "-...-"},   {'+', ".-.-."},
    {'@', ".--.-."},
}};

/// Returns a number of mean 0 and variance 1 between -6 and 6, the same on every platform: the sum of 12
/// uniform numbers, less 6.
[[nodiscard]] inline double normal(looptorch::SplitMix64& random) {
  double sum = -6;
  for (int i = 0; i < 12; ++i) sum += random.uniform();
  return sum;
}

}  // namespace detail

/// Returns the dots and dashes of a character; empty if it has none. Upper and lower case are the same.
[[nodiscard]] inline std::string_view code_of(char character) {
  if (character >= 'A' && character <= 'Z') character = static_cast<char>(character - 'A' + 'a');
  const auto found = std::find_if(detail::kCode.begin(), detail::kCode.end(),
                                  [&](const auto& entry) { return entry.first == character; });
  return found == detail::kCode.end() ? std::string_view() : found->second;
}

/// Seconds of a dot.
[[nodiscard]] constexpr double unit_seconds(double words_per_minute) { return 60 / (50 * words_per_minute); }

/// How a hand keys.
struct Keying {
  double words_per_minute = 20;
  double jitter = 0;  ///< Standard deviation of a length, as a share of that length; at most 0.15.
};

/// A time in which the key is down, in seconds.
struct Mark {
  double begin = 0, end = 0;
};

/// Returns the marks of a text from time 0, sorted and disjoint. Dashes are 3 dots long, gaps 1 within a
/// character, 3 between characters and 7 between words. Throws MorseError for a character without code and
/// for a speed or jitter out of range.
[[nodiscard]] inline std::vector<Mark> keyed(std::string_view text, const Keying& keying,
                                             looptorch::SplitMix64& random) {
  if (!(keying.words_per_minute >= 1 && keying.words_per_minute <= 100))
    throw MorseError(looptorch::message("a speed of ", keying.words_per_minute, " words a minute: 1 to 100"));
  if (!(keying.jitter >= 0 && keying.jitter <= 0.15))
    throw MorseError(looptorch::message("a jitter of ", keying.jitter, ": 0 to 0.15"));
  const double unit = unit_seconds(keying.words_per_minute);
  const auto length = [&](int units) {
    return units * unit * (1 + keying.jitter * (keying.jitter > 0 ? detail::normal(random) : 0));
  };
  std::vector<Mark> marks;
  double now = 0;
  int gap = 0;  // units before the next mark
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == ' ') {
      gap = marks.empty() ? 0 : 7;
      continue;
    }
    const std::string_view code = code_of(text[i]);
    if (code.empty())
      throw MorseError(looptorch::message("\"", text, "\": character ", i + 1, " has no Morse code"));
    for (const char sign : code) {
      now += gap > 0 ? length(gap) : 0;
      const double end = now + length(sign == '.' ? 1 : 3);
      marks.push_back({now, end});
      now = end, gap = 1;
    }
    gap = 3;
  }
  return marks;
}

}  // namespace morse
