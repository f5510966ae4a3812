// SPDX-License-Identifier: MIT
// Switches a seeded bug on: the one whose name the variable LOOPTORCH_MUTANT has as the program starts.
#pragma once

#include <cstdlib>
#include <string_view>

namespace looptorch_test {

inline bool is_mutant(std::string_view name) {
  static const char* const chosen = std::getenv("LOOPTORCH_MUTANT");
  return chosen && name == chosen;
}

}  // namespace looptorch_test
