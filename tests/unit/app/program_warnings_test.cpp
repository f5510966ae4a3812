// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/app/program_warnings.hpp>

#include <c10/util/Exception.h>

#include <iostream>
#include <sstream>
#include <string>

namespace {

/// What the warning prints while `ProgramWarnings` lives.
std::string printed(const std::string& text) {
  std::ostringstream said;
  auto* const before = std::cerr.rdbuf(said.rdbuf());
  {
    const looptorch::app::ProgramWarnings warnings("digits");
    TORCH_WARN(text);
  }
  std::cerr.rdbuf(before);
  return said.str();
}

}  // namespace

TEST_CASE("ProgramWarnings: looptorch's warnings are lines of the program, LibTorch's stay") {
  CHECK(printed("looptorch: the rate jumps") == "digits: warning: the rate jumps\n");
  const auto others = printed("a tensor was copied");
  CHECK(others.find("digits") == std::string::npos);
  auto* const own = c10::WarningUtils::get_warning_handler();
  printed("looptorch: again");
  CHECK(c10::WarningUtils::get_warning_handler() == own);
}
