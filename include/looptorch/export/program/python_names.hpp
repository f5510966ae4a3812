// SPDX-License-Identifier: MIT
// Turns weight names into valid Python identifiers: `in`, a keyword, becomes `in_`.
#pragma once

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <string>
#include <string_view>

namespace looptorch::detail {

[[nodiscard]] inline bool is_python_keyword(std::string_view word) {
  static constexpr std::string_view kKeywords[] = {
      "False", "None",     "True",  "and",    "as",   "assert", "async",  "await",    "break",
      "class", "continue", "def",   "del",    "elif", "else",   "except", "finally",  "for",
      "from",  "global",   "if",    "import", "in",   "is",     "lambda", "nonlocal", "not",
      "or",    "pass",     "raise", "return", "try",  "while",  "with",   "yield"};
  return std::find(std::begin(kKeywords), std::end(kKeywords), word) != std::end(kKeywords);
}

/// Returns a weight's name with an underscore after each part that is a keyword.
[[nodiscard]] inline std::string for_python(const std::string& name) {
  std::string made;
  for (std::size_t begin = 0; begin <= name.size();) {
    const auto end = std::min(name.find('.', begin), name.size());
    const std::string part = name.substr(begin, end - begin);
    made += (begin > 0 ? "." : "") + part + (is_python_keyword(part) ? "_" : "");
    begin = end + 1;
  }
  return made;
}

}  // namespace looptorch::detail
