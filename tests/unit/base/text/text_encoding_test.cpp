// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/base/text/text_encoding.hpp>

#include "support/wide_text.hpp"

#include <string>

using looptorch::find_wide_encoding;
using looptorch::testing::in_utf16;
using looptorch::testing::in_utf32;

TEST_CASE("UTF-16 and UTF-32 are known by their byte order mark, or by their first two characters") {
  const auto text =
      GENERATE(as<std::u32string>(), U"{\"text\"", U"audio_file,text\nr\u00e9sum\u00e9.wav,x", U"[\n");
  for (const bool marked : {false, true}) {
    const auto whole = (marked ? U"\ufeff" : U"") + text;
    CHECK(find_wide_encoding(in_utf16(whole, true)) == "UTF-16BE");
    CHECK(find_wide_encoding(in_utf16(whole, false)) == "UTF-16LE");
    CHECK(find_wide_encoding(in_utf32(whole, true)) == "UTF-32BE");
    CHECK(find_wide_encoding(in_utf32(whole, false)) == "UTF-32LE");
  }
}

TEST_CASE("UTF-8 is not taken for a wide encoding, with a byte order mark, NULs or few bytes either") {
  using namespace std::string_literals;
  for (const auto& text : {""s, "a"s, "ab"s, "audio_file,text"s, "\xef\xbb\xbf{"s, "\0\0\0\0"s, "{\0\"a"s,
                           "\0{\"a"s, "\xc3\xa9\0\0"s, "\xe0\xa4\x95"s, "{\0"s})
    CHECK(find_wide_encoding(text).empty());
}

TEST_CASE("the sentence on another encoding names it, and the way out of it") {
  CHECK(looptorch::wide_encoding_fault("UTF-16LE") ==
        "the text is in UTF-16LE, not UTF-8; convert it: iconv -f UTF-16LE -t UTF-8");
}
