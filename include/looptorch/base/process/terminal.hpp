// SPDX-License-Identifier: MIT
// Rewrites the last line of a terminal in place, as a progress bar does, and formats durations and numbers
// for it. ShowProgress updates such a line; warnings are printed above it by `own_line`.
#pragma once

#include <looptorch/base/text/utf8.hpp>

#include <sys/ioctl.h>
#include <unistd.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

namespace looptorch::detail {

inline bool is_terminal(std::FILE* out) { return ::isatty(::fileno(out)) == 1; }

/// True if a line on `out` can be rewritten: `out` is a terminal that moves its cursor (TERM is set, and is
/// not "dumb"), and this process is not in the background of its shell, whose prompt would be overwritten.
inline bool can_rewrite_line(std::FILE* out) {
  if (!is_terminal(out)) return false;
  const char* kind = std::getenv("TERM");
  if (!kind || !*kind || std::string_view(kind) == "dumb") return false;
  const pid_t foreground = ::tcgetpgrp(::fileno(out));  // -1: of another session, or of none
  return foreground == -1 || foreground == ::getpgrp();
}

/// True if colours may be written to `out`: it shows them, and NO_COLOR (no-color.org) is not set.
inline bool takes_colour(std::FILE* out) {
  const char* refused = std::getenv("NO_COLOR");
  return can_rewrite_line(out) && !(refused && *refused);
}

/// Returns `text` in yellow where `out` takes colours.
inline std::string warning_text(std::FILE* out, const std::string& text) {
  return takes_colour(out) ? "\033[33m" + text + "\033[0m" : text;
}

/// Returns the columns of the terminal behind `out`; 80 where that is unknown.
inline std::size_t terminal_columns(std::FILE* out) {
  winsize size{};
  return ::ioctl(::fileno(out), TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

/// Returns the start of `text` that takes at most `columns`, one a character.
inline std::string first_columns(std::string_view text, std::size_t columns) {
  std::size_t at = 0;
  for (; columns > 0 && at < text.size(); --columns) at += utf8_step(text, at).size;
  return std::string(text.substr(0, at));
}

/// Returns the columns that `text` takes, one a character.
inline std::size_t columns_of(std::string_view text) {
  std::size_t columns = 0;
  for (std::size_t at = 0; at < text.size(); ++columns) at += utf8_step(text, at).size;
  return columns;
}

/// Replaces the terminal's current line, cut to its width so that it never wraps.
inline void write_live_line(std::FILE* out, const std::string& text) {
  std::fprintf(out, "\r%s\033[K", first_columns(text, terminal_columns(out) - 1).c_str());
  std::fflush(out);
}

/// Returns the text that clears a live line on `out`; empty if there can be none.
inline const char* clearing_code(std::FILE* out) { return can_rewrite_line(out) ? "\r\033[K" : ""; }

/// Returns `text` as a line of its own for `out`. The line replaces a live line, which reappears below at its
/// next update. Policies write to stderr this way: `std::cerr << own_line(stderr, text)`.
inline std::string own_line(std::FILE* out, std::string_view text) {
  return std::string(clearing_code(out)).append(text).append("\n");
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
