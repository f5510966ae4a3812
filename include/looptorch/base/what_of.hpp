// SPDX-License-Identifier: MIT
// Returns the message of an exception of any type, without LibTorch's stack trace. Also has
// `ignoring_errors`, which runs cleanup code and drops its exceptions.
#pragma once

#include <c10/util/Exception.h>

#include <exception>
#include <string>

namespace looptorch::detail {

/// Returns `text` up to its first line break.
[[nodiscard]] inline std::string first_line(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

/// Returns the exception's message; a LibTorch error's without the stack trace.
inline std::string what_of(const std::exception_ptr& thrown) {
  try {
    std::rethrow_exception(thrown);
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "an exception that does not derive from std::exception";
  }
}

/// Calls `f` and drops its exception: for cleanup while another exception propagates.
template <class F>
void ignoring_errors(F&& f) noexcept {
  try {
    f();
  } catch (...) {
  }
}

}  // namespace looptorch::detail
