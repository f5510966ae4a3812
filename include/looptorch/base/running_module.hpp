// SPDX-License-Identifier: MIT
// Holds the name of the Python module that an imported model (ExportedModel) is running on this thread. A
// trace of operators reads it to say which module made a NaN. Modules written in C++ do not need it: the
// trace finds them on the call stack.
#pragma once

#include <string>

namespace looptorch::detail {

/// A Python module of an exported program: its path, which is empty for the outermost module, and its class.
struct RunningModule {
  std::string path;
  std::string type = {};
};

/// The module on this thread; null where none is known, or nothing watches operators.
inline thread_local const RunningModule* running_module = nullptr;

/// True while this thread's operators are traced back to modules, whose layers then run one by one.
inline thread_local bool traces_modules = false;

}  // namespace looptorch::detail
