// SPDX-License-Identifier: MIT
// Names the Python module whose operators an exported program is running, so that a trace of operators can
// name that module. C++ modules need no such note: their functions are on the call stack.
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

/// True while this thread's operators are traced back to modules, whose layers then run one by one.
inline thread_local bool traces_modules = false;

}  // namespace looptorch::detail
