// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/base/what_of.hpp>

#include <exception>
#include <stdexcept>
#include <string>

using looptorch::detail::what_of;

TEST_CASE("an exception of any type has one line, a LibTorch error without its stack trace") {
  CHECK(what_of(std::make_exception_ptr(std::runtime_error("cut off"))) == "cut off");
  CHECK(what_of(std::make_exception_ptr(3)) == "an exception that does not derive from std::exception");
  try {
    torch::ones({2}).mm(torch::ones({2}));
    FAIL("the product is impossible");
  } catch (const c10::Error& error) {
    const std::string text = what_of(std::current_exception());
    CHECK_THAT(text, Catch::Contains("self must be a matrix"));
    CHECK(text == error.what_without_backtrace());
    CHECK(text.find("frame #0") == std::string::npos);
  }
}

TEST_CASE("the first line of a text ends before its first line break") {
  CHECK(looptorch::detail::first_line("cut off\nat 0x1\n") == "cut off");
  CHECK(looptorch::detail::first_line("cut off") == "cut off");
  CHECK(looptorch::detail::first_line("").empty());
}
