// SPDX-License-Identifier: MIT
// The root of every exception that looptorch itself throws. LibTorch's own errors (c10::Error) pass through
// unchanged.
#pragma once

#if __cplusplus < 202002L
#error "looptorch needs C++20: -std=c++20, or in CMake a target that links looptorch::looptorch"
#endif

#include <sstream>
#include <stdexcept>
#include <string>

namespace looptorch {
namespace detail {

/// Returns the text with "\0" written out for each NUL, at which a C string ends.
[[nodiscard]] inline std::string with_nul_written_out(std::string text) {
  for (auto at = text.find('\0'); at != std::string::npos; at = text.find('\0', at))
    text.replace(at, 1, "\\0");
  return text;
}

}  // namespace detail

/// The base of looptorch's typed errors. `what()` is one sentence that names the value, shape, file or line
/// at fault. A NUL in it, as damaged files have, is written out as "\0".
struct Error : std::runtime_error {
  explicit Error(const std::string& what) : std::runtime_error(detail::with_nul_written_out(what)) {}
};

/// Thrown for a setting or a call that cannot be right: negative epochs, an empty model, a loss of the wrong
/// shape.
struct UsageError : Error {
  using Error::Error;
};

/// Concatenates anything that streams: `message("expected ", n, ", got ", tensor.sizes())`.
template <class... Parts>
[[nodiscard]] std::string message(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return std::move(out).str();
}

}  // namespace looptorch
