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

/// The base of looptorch's typed errors. `what()` is one sentence that names the value, shape, file or line
/// at fault.
struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
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
