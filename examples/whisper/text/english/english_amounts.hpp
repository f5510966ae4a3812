// SPDX-License-Identifier: MIT
// Writes the numbers and amounts of money in a text as digits, by openai-whisper's rules. First rewrites "and
// a half" and puts spaces between digits and letters. Then english_numbers.hpp turns spoken numbers into
// digits. Last, joins dollars and cents, and writes the number 1 as a word.
#pragma once

#include <looptorch/metrics/unicode/white_space.hpp>

#include "decimal_digits.hpp"
#include "english_number_words.hpp"
#include "english_numbers.hpp"
#include "text_patterns.hpp"

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

namespace whisper::detail {

/// Returns the size of \band\s+a\s+half\b at `at`, or 0.
[[nodiscard]] inline std::size_t match_and_a_half(std::string_view text, std::size_t at) {
  if (text.substr(at, 3) != "and" || !is_word_boundary(text, at)) return 0;
  const auto article = looptorch::skip_white_space(text, at + 3);
  if (article == at + 3 || text.substr(article, 1) != "a") return 0;
  const auto half = looptorch::skip_white_space(text, article + 1);
  if (half == article + 1 || text.substr(half, 4) != "half" || !is_word_boundary(text, half + 4)) return 0;
  return half + 4 - at;
}

[[nodiscard]] inline bool ends_in_number(std::string_view text) {
  const auto words = looptorch::split_white_space(text);
  const auto* last = words.empty() ? nullptr : find_number_word(words.back());
  return last != nullptr && (last->is_digits() || last->is_multiplier());
}

/// Turns "two and a half" into "two point five"; removes "and a half" without a number before it.
[[nodiscard]] inline std::string write_halves(std::string_view text) {
  std::size_t begin = 0;
  return rewrite(text, [&begin](std::string_view rest, std::size_t at, std::string& out) {
    const auto size = match_and_a_half(rest, at);
    if (size == 0) return size;
    const auto before = rest.substr(begin, at - begin);
    if (!looptorch::strip_white_space(before).empty())
      out += ends_in_number(before) ? " point five " : " and a half ";
    begin = at + size;
    return size;
  });
}

/// Puts a space between [a-z] and [0-9] in either order.
[[nodiscard]] inline std::string separate_letters_and_digits(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto last = out.empty() ? U' ' : static_cast<unsigned char>(out.back());
    const auto next = static_cast<unsigned char>(c);
    const bool parts =
        (is_ascii_lower(last) && is_ascii_digit(next)) || (is_ascii_digit(last) && is_ascii_lower(next));
    if (parts) out += ' ';
    out += c;
  }
  return out;
}

/// Removes the space in ([0-9])\s+(st|nd|rd|th|s)\b.
[[nodiscard]] inline std::string join_ordinal_endings(std::string_view text) {
  return rewrite(text, [](std::string_view rest, std::size_t at, std::string& out) -> std::size_t {
    const auto end = looptorch::skip_white_space(rest, at);
    const bool follows_digit = at > 0 && is_ascii_digit(static_cast<unsigned char>(rest[at - 1]));
    const auto joins = [&](std::string_view ending) {
      return rest.substr(end).starts_with(ending) && is_word_boundary(rest, end + ending.size());
    };
    const bool is_joined =
        follows_digit && (joins("st") || joins("nd") || joins("rd") || joins("th") || joins("s"));
    if (!is_joined) out += rest.substr(at, end - at);
    return end - at;
  });
}

/// Returns the number of digits of [0-9]{1,2}\b at `at`, or 0.
[[nodiscard]] inline std::size_t match_cents(std::string_view text, std::size_t at) {
  std::size_t size = 0;
  while (at + size < text.size() && is_ascii_digit(static_cast<unsigned char>(text[at + size]))) ++size;
  return size <= 2 && size > 0 && is_word_boundary(text, at + size) ? size : 0;
}

/// Returns the size of a currency's sign at `at`, except that of cents, or 0.
[[nodiscard]] inline std::size_t match_currency(std::string_view text, std::size_t at) {
  for (const std::string_view sign : {"\u20AC", "\u00A3", "$"}) {
    if (text.substr(at).starts_with(sign)) return sign.size();
  }
  return 0;
}

/// Joins ([€£$])([0-9]+) (?:and )?¢([0-9]{1,2})\b: "$2 and ¢7" becomes "$2.07".
[[nodiscard]] inline std::string join_cents(std::string_view text) {
  return rewrite(text, [](std::string_view rest, std::size_t at, std::string& out) -> std::size_t {
    constexpr std::string_view kAnd = "and ", kCents = "\u00A2";
    const auto amount = at + match_currency(rest, at);
    if (amount == at) return 0;
    const auto end = std::min(rest.find_first_not_of("0123456789", amount), rest.size());
    if (end == amount || rest.substr(end, 1) != " ") return 0;
    const auto sign = end + 1 + (rest.substr(end + 1).starts_with(kAnd) ? kAnd.size() : 0);
    const auto cents = sign + kCents.size();
    const auto size = rest.substr(sign).starts_with(kCents) ? match_cents(rest, cents) : 0;
    if (size == 0) return 0;
    out.append(rest.substr(at, end - at)).append(size == 1 ? ".0" : ".").append(rest.substr(cents, size));
    return cents + size - at;
  });
}

/// Rewrites [€£$]0.([0-9]{1,2})\b, where "." is any character: "$0.07" becomes "¢7".
[[nodiscard]] inline std::string extract_cents(std::string_view text) {
  return rewrite(text, [](std::string_view rest, std::size_t at, std::string& out) -> std::size_t {
    const auto zero = at + match_currency(rest, at);
    if (zero == at || rest.substr(zero, 1) != "0" || zero + 1 == rest.size()) return 0;
    const auto cents = zero + 1 + looptorch::utf8_step(rest, zero + 1).size;
    const auto size = match_cents(rest, cents);
    if (size == 0) return 0;
    out.append("\u00A2").append(without_leading_zeros(std::string(rest.substr(cents, size))));
    return cents + size - at;
  });
}

/// Rewrites \b1(s?)\b as "one", "ones".
[[nodiscard]] inline std::string write_one(std::string text) {
  replace_all(text, "1s", "ones", Bounded::at_both_ends);
  replace_all(text, "1", "one", Bounded::at_both_ends);
  return text;
}

/// Returns the text with its numbers and amounts of money as digits.
[[nodiscard]] inline std::string write_numbers(std::string_view text) {
  const auto prepared = join_ordinal_endings(separate_letters_and_digits(write_halves(text)));
  return write_one(extract_cents(join_cents(NumberWriter().write(prepared))));
}

}  // namespace whisper::detail
