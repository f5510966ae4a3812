// SPDX-License-Identifier: MIT
// Shortens a list of names for an error message: "a, b, c and 4 more".
#pragma once

#include <looptorch/base/error.hpp>

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

namespace looptorch::detail {

/// Returns "a, b, c and 4 more".
[[nodiscard]] inline std::string first_few(const std::vector<std::string>& names) {
  constexpr std::size_t kNamed = 3;
  std::string text;
  for (std::size_t i = 0; i < std::min(kNamed, names.size()); ++i) text += (i == 0 ? "" : ", ") + names[i];
  return names.size() > kNamed ? message(text, " and ", names.size() - kNamed, " more") : text;
}

}  // namespace looptorch::detail
