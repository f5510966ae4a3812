// SPDX-License-Identifier: MIT
// With other_unit.cpp: a function or variable that a header defines without `inline` would be defined twice.
#include "everything.hpp"
#include "support/catch.hpp"

const char* message_from_other_unit();

TEST_CASE("Two translation units that include every header link into one program") {
  CHECK(std::string(looptorch::Error(message_from_other_unit()).what()) == "other unit");
}
