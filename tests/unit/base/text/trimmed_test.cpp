// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/base/text/trimmed.hpp>

#include <string_view>

using looptorch::trimmed;
using namespace std::string_view_literals;

TEST_CASE("white space is removed at the ends of a text only") {
  CHECK(trimmed(" \t\r\n a \t b\r\n") == "a \t b");
  CHECK(trimmed("a") == "a");
  CHECK(trimmed("\n\n").empty());
  CHECK(trimmed("").empty());
  CHECK(trimmed("\u00a0a"sv) == "\u00a0a");  // ASCII only
  CHECK(trimmed(" \0 "sv) == "\0"sv);
}
