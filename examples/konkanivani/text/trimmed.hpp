// SPDX-License-Identifier: MIT
// Removes the spaces at both ends of a text.
#pragma once

#include <string_view>

namespace konkanivani {

/// Returns `text` without spaces, tabs and line ends at its ends.
[[nodiscard]] inline std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpaces = " \t\r\n";
  const auto first = text.find_first_not_of(kSpaces);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpaces) + 1 - first);
}

}  // namespace konkanivani
