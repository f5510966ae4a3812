// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/base/error.hpp>

#include <cstdint>
#include <locale>
#include <stdexcept>
#include <string>

namespace lt = looptorch;

TEST_CASE("a message joins whatever streams, and errors keep it") {
  const std::string text = lt::message("expected ", std::int64_t{3}, ", got ", torch::zeros({2, 4}).sizes(),
                                       " of ", torch::kFloat);
  CHECK(text == "expected 3, got [2, 4] of Float");
  try {
    throw lt::UsageError(text);
  } catch (const lt::Error& error) {
    CHECK(error.what() == text);
  }
  CHECK_THROWS_AS(throw lt::Error("x"), std::runtime_error);
}

TEST_CASE("a NUL does not end an error's message") {
  using namespace std::string_literals;
  CHECK(lt::Error("begins with \"a\0b\0\"; and goes on"s).what() == "begins with \"a\\0b\\0\"; and goes on"s);
  CHECK(lt::UsageError("\0"s).what() == "\\0"s);
}

TEST_CASE("a message does not depend on the program's locale") {
  struct German : std::numpunct<char> {
    char do_decimal_point() const override { return ','; }
    char do_thousands_sep() const override { return '.'; }
    std::string do_grouping() const override { return "\3"; }
  };
  const std::locale before = std::locale::global(std::locale(std::locale(), new German));
  const std::string text = lt::message(12345, " and ", 1.5);
  std::locale::global(before);
  CHECK(text == "12345 and 1.5");
}
