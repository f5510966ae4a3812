// SPDX-License-Identifier: MIT
// Selects parameters or layers by patterns of their names, which work like a shell's patterns for files: `*`
// matches any characters, dots included, `?` any one character, and `[abc]` one of these three; `\` takes the
// next character literally.
#pragma once

#include <fnmatch.h>

#include <string>

namespace looptorch::detail {

/// True if the pattern matches the whole name: "encoder.*" matches "encoder.0.weight", "encoder" does not.
[[nodiscard]] inline bool matches_pattern(const std::string& name, const std::string& pattern) {
  return fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
}

/// Returns the pattern that matches only this name.
[[nodiscard]] inline std::string escaped_pattern(const std::string& name) {
  std::string pattern;
  for (const char c : name) {
    if (c == '*' || c == '?' || c == '[' || c == '\\') pattern += '\\';
    pattern += c;
  }
  return pattern;
}

}  // namespace looptorch::detail
