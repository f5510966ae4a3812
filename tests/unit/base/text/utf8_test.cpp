// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/base/text/utf8.hpp>

#include <string>
#include <string_view>

using looptorch::append_utf8;
using looptorch::find_invalid_utf8;
using looptorch::replace_invalid_utf8;
using looptorch::utf8_step;

TEST_CASE("UTF-8: every scalar value survives writing and reading") {
  for (char32_t c = 0; c <= 0x10FFFF; ++c) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    std::string text;
    append_utf8(text, c);
    const auto step = utf8_step(text, 0);
    if (!(step.valid && step.code_point == c && step.size == text.size())) {
      FAIL("U+" << std::hex << static_cast<unsigned>(c));
    }
  }
}

TEST_CASE("UTF-8: the first byte that is wrong is found") {
  CHECK(find_invalid_utf8("a\u00e9\u0915\U0001F600") == std::string_view::npos);
  CHECK(find_invalid_utf8("") == std::string_view::npos);
  CHECK(find_invalid_utf8("ab\xFF") == 2);
  CHECK(find_invalid_utf8("\u0915\xE0\xA4") == 3);
  CHECK(find_invalid_utf8("a\x80") == 1);
  CHECK(find_invalid_utf8("\xC0\xAF") == 0);
  CHECK(find_invalid_utf8("\xED\xA0\x80") == 0);
  CHECK(find_invalid_utf8("\xF4\x90\x80\x80") == 0);
  CHECK(find_invalid_utf8("\xE0\x80\x80") == 0);
}

TEST_CASE("UTF-8: one replacement for each maximal ill-formed part, as Python's decode(errors='replace')") {
  CHECK(replace_invalid_utf8("a\u0915\U0001F600") == "a\u0915\U0001F600");
  CHECK(replace_invalid_utf8("\xF0\x9F\x98") == "\uFFFD");
  CHECK(replace_invalid_utf8("\xE0\xA4"
                             "a") ==
        "\uFFFD"
        "a");
  CHECK(replace_invalid_utf8("\xED\xA0\x80") == "\uFFFD\uFFFD\uFFFD");
  CHECK(replace_invalid_utf8("\xF0\x80\x80\x41") ==
        "\uFFFD\uFFFD\uFFFD"
        "A");
  CHECK(replace_invalid_utf8("\xC2\xC2\xA9") == "\uFFFD\u00A9");
}
