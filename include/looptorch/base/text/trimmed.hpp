// SPDX-License-Identifier: MIT
// Removes ASCII white space around a text, such as a field of a table.
#pragma once

#include <string_view>

namespace looptorch {

inline constexpr std::string_view kWhiteSpace = " \t\r\n";

/// Returns the text without white space at its ends.
[[nodiscard]] inline std::string_view trimmed(std::string_view text) {
  const auto first = text.find_first_not_of(kWhiteSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kWhiteSpace) + 1 - first);
}

}  // namespace looptorch
