// SPDX-License-Identifier: MIT
// Lets a preloaded library run a function in place of a program's main, once all static objects are made.
// Include it in one source of the library, which defines `replaced_main`.
#pragma once

#include <dlfcn.h>

namespace looptorch::testing {
namespace {

using Main = int (*)(int, char**, char**);

Main program = nullptr;  ///< The program's own main.

/// Returns what is to run: `program`, or another function in its place.
Main replaced_main();

}  // namespace
}  // namespace looptorch::testing

/// The C library's, which calls `main` once all static objects are made.
extern "C" int __libc_start_main(looptorch::testing::Main main, int argc, char** argv, void (*init)(),
                                 void (*fini)(), void (*linker_fini)(), void* stack_end) {
  namespace testing = looptorch::testing;
  static const auto start =
      reinterpret_cast<decltype(&__libc_start_main)>(::dlsym(RTLD_NEXT, "__libc_start_main"));
  testing::program = main;
  return start(testing::replaced_main(), argc, argv, init, fini, linker_fini, stack_end);
}
