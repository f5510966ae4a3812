// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/base/text/utf8.hpp>
#include <looptorch/metrics/alignment_text.hpp>
#include <looptorch/metrics/character_error_rate.hpp>
#include <looptorch/metrics/word_error_rate.hpp>

#include <algorithm>
#include <string>

using looptorch::align_characters;
using looptorch::align_words;
using looptorch::alignment_text;
using looptorch::CharacterUnit;
using looptorch::display_width;

TEST_CASE("alignment: words stand above each other, errors are marked") {
  CHECK(alignment_text(align_words("turn left heading seven zero", "turn right heading two seven")) ==
        "REF  turn left  heading *** seven zero\n"
        "HYP  turn right heading two seven ****\n"
        "          S             I         D\n");
  CHECK(alignment_text(align_words("a b", "a b")) == "REF  a b\nHYP  a b\n\n");
  CHECK(alignment_text(align_words("", "")) == "");
}

TEST_CASE("alignment: characters stand without gaps") {
  CHECK(alignment_text(align_characters("kitten", "sitting")) ==
        "REF  kitten*\n"
        "HYP  sitting\n"
        "     S   S I\n");
}

TEST_CASE("alignment: columns are a terminal's") {
  CHECK(alignment_text(align_words("कोंकणी भास", "कोंकण भास बरी")) ==
        "REF  कोंकणी भास **\n"
        "HYP  कोंकण भास बरी\n"
        "     S      I\n");
  CHECK(alignment_text(align_words("你好 世界", "hello 世界")) ==
        "REF  你好  世界\n"
        "HYP  hello 世界\n"
        "     S\n");
  CHECK(display_width("कोंकणी") == 3);
  CHECK(display_width("你好!") == 5);
  CHECK(display_width("") == 0);
}

TEST_CASE("alignment: marks without their base and controls can be seen") {
  CHECK(alignment_text(align_characters("कि", "की")) ==
        "REF  क◌ि\n"
        "HYP  क◌ी\n"
        "      S\n");
  CHECK(alignment_text(align_characters("कि", "की", CharacterUnit::grapheme_cluster)) ==
        "REF  कि\n"
        "HYP  की\n"
        "     S\n");
  CHECK(alignment_text(align_characters("a\nb\x7F", "a\tb\x7F")) ==
        "REF  a␊b␡\n"
        "HYP  a␉b␡\n"
        "      S\n");
  CHECK(alignment_text(align_words("a\xFF", "a")) ==
        "REF  a\uFFFD\n"
        "HYP  a\n"
        "     S\n");
}

TEST_CASE("alignment: what a terminal would obey is shown by its number") {
  CHECK(alignment_text(align_words("x\u009B31my", "x\u202Ey")) ==
        "REF  x<U+9B>31my\n"
        "HYP  x<U+202E>y\n"
        "     S\n");
  for (char32_t c = 0; c < 0x3000; ++c) {
    const bool is_control =
        c < 0x20 || (c >= 0x7F && c < 0xA0) || (c >= 0x2028 && c <= 0x202E) || (c >= 0x2066 && c <= 0x2069);
    if (!is_control) continue;
    CAPTURE(static_cast<unsigned>(c));
    std::string text = "x";
    looptorch::append_utf8(text, c);
    text += 'y';
    const auto control = text.substr(1, text.size() - 2);
    const auto shown = alignment_text(align_characters(text, "xy"));
    CHECK((control == "\n" || shown.find(control) == std::string::npos));
    CHECK(shown.substr(0, 6) == "REF  x");
    CHECK(std::count(shown.begin(), shown.end(), '\n') == 3);
  }
}

TEST_CASE("alignment: long ones are broken into blocks") {
  const auto alignment = align_words("one two three four", "one too three");
  CHECK(alignment_text(alignment, {.line_width = 14}) ==
        "REF  one two\n"
        "HYP  one too\n"
        "         S\n"
        "\n"
        "REF  three\n"
        "HYP  three\n"
        "\n"
        "\n"
        "REF  four\n"
        "HYP  ****\n"
        "     D\n");
  CHECK(alignment_text(alignment, {.line_width = 6}).find("three") != std::string::npos);
  CHECK(alignment_text(alignment, {.line_width = 0}) == alignment_text(alignment));
  CHECK_THROWS_WITH(alignment_text(alignment, {.line_width = 5}),
                    "alignment_text: line_width is 5; it must be 0 or more than 5");
}
