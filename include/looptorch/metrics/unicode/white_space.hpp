// SPDX-License-Identifier: MIT
// Finds white space in UTF-8 by Python's definition (str.split, str.strip, \s). Takes linear time; only
// functions that return lists allocate.
#pragma once

#include <looptorch/base/text/utf8.hpp>

#include <cstddef>
#include <string_view>
#include <vector>

namespace looptorch {

[[nodiscard]] constexpr bool is_white_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

/// Returns the first offset from `at` on that is not white space, or the text's size.
[[nodiscard]] constexpr std::size_t skip_white_space(std::string_view text, std::size_t at) {
  while (at < text.size()) {
    const auto step = utf8_step(text, at);
    if (!is_white_space(step.code_point)) break;
    at += step.size;
  }
  return at;
}

/// Returns the first offset from `at` on that is white space, or the text's size.
[[nodiscard]] constexpr std::size_t find_white_space(std::string_view text, std::size_t at) {
  while (at < text.size()) {
    const auto step = utf8_step(text, at);
    if (is_white_space(step.code_point)) break;
    at += step.size;
  }
  return at;
}

/// Returns the parts between white space, none of them empty.
[[nodiscard]] inline std::vector<std::string_view> split_white_space(std::string_view text) {
  std::vector<std::string_view> words;
  for (auto at = skip_white_space(text, 0); at < text.size();) {
    const auto end = find_white_space(text, at);
    words.push_back(text.substr(at, end - at));
    at = skip_white_space(text, end);
  }
  return words;
}

[[nodiscard]] constexpr std::string_view strip_white_space(std::string_view text) {
  const auto first = skip_white_space(text, 0);
  auto last = first;
  for (auto at = first; at < text.size(); at = skip_white_space(text, last))
    last = find_white_space(text, at);
  return text.substr(first, last - first);
}

}  // namespace looptorch
