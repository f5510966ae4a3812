// SPDX-License-Identifier: MIT
// Patterns that pick parameters by name, as a shell picks files: `*` any characters, dots included, `?` one,
// `[abc]` one of several, `\` takes the next character as it is.
#pragma once

#include <fnmatch.h>

#include <string>

namespace looptorch::detail {

/// Whether the pattern describes the whole name: "encoder.*" matches "encoder.0.weight", "encoder" does not.
[[nodiscard]] inline bool matches_pattern(const std::string& name, const std::string& pattern) {
  return fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
}

/// The pattern that matches this name alone.
[[nodiscard]] inline std::string escaped_pattern(const std::string& name) {
  std::string pattern;
  for (const char c : name) {
    if (c == '*' || c == '?' || c == '[' || c == '\\') pattern += '\\';
    pattern += c;
  }
  return pattern;
}

}  // namespace looptorch::detail
