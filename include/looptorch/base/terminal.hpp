// SPDX-License-Identifier: MIT
// Writes a line of a terminal that is updated in place, and formats times and numbers for it.
#pragma once

#include <sys/ioctl.h>
#include <unistd.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>

namespace looptorch::detail {

inline bool is_terminal(std::FILE* out) { return ::isatty(::fileno(out)) == 1; }

/// Returns the columns of the terminal behind `out`; 80 where that is unknown.
inline std::size_t terminal_columns(std::FILE* out) {
  winsize size{};
  return ::ioctl(::fileno(out), TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

/// Replaces the terminal's current line, cut to its width so that it never wraps.
inline void write_live_line(std::FILE* out, const std::string& text) {
  std::fprintf(out, "\r%s\033[K", text.substr(0, terminal_columns(out) - 1).c_str());
  std::fflush(out);
}

/// Returns "0:05", "12:34" or "1:02:03".
inline std::string clock_text(double seconds) {
  if (!(seconds >= 0 && seconds < 3.6e6)) return "?";
  const auto total = static_cast<std::int64_t>(std::llround(seconds));
  char text[32];
  if (total >= 3600)
    std::snprintf(text, sizeof text, "%lld:%02lld:%02lld", static_cast<long long>(total / 3600),
                  static_cast<long long>(total / 60 % 60), static_cast<long long>(total % 60));
  else
    std::snprintf(text, sizeof text, "%lld:%02lld", static_cast<long long>(total / 60),
                  static_cast<long long>(total % 60));
  return text;
}

/// Returns `value` with `digits` significant digits.
inline std::string number_text(double value, int digits = 4) {
  char text[32];
  std::snprintf(text, sizeof text, "%.*g", digits, value);
  return text;
}

}  // namespace looptorch::detail
