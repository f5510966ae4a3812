// SPDX-License-Identifier: MIT
// The module that a program under way comes from, for what watches its operators. Code in C++ needs none: its
// functions are on the stack.
#pragma once

#include <string>

namespace looptorch::detail {

/// A module of a program by its path, which is empty for the program's own, and its class in Python.
struct RunningModule {
  std::string path;
  std::string type = {};
};

/// The module on this thread; null where none is known, or nothing watches operators.
inline thread_local const RunningModule* running_module = nullptr;

}  // namespace looptorch::detail
