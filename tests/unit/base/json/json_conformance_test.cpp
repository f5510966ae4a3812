// SPDX-License-Identifier: MIT
// RFC 8259 by category, as public suites for JSON parsers are laid out: what must be accepted, what must be
// refused, and what is left to the parser, with what this one does.
// Tests base/json: json
#include <looptorch/base/json/json.hpp>

#include "support/catch.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

using Catch::Contains;
using looptorch::Json;
using looptorch::JsonError;

namespace {

using Texts = std::vector<std::string>;

/// A string literal with its NUL bytes.
template <std::size_t N>
std::string bytes(const char (&text)[N]) {
  return std::string(text, N - 1);
}

void accepts(const Texts& texts) {
  for (const auto& text : texts) {
    CAPTURE(text);
    REQUIRE_NOTHROW(Json::parse(text));
    const auto value = Json::parse(text);
    CHECK(Json::parse(value.dump()) == value);
    CHECK(Json::parse(" \t\r\n" + text + " \t\r\n") == value);
  }
}

/// Each with a place inside the text, or at its end.
void refuses(const Texts& texts) {
  for (const auto& text : texts) {
    CAPTURE(text);
    try {
      (void)Json::parse(text);
      FAIL_CHECK("accepted");
    } catch (const JsonError& error) {
      std::size_t line = 0, column = 0, byte = 0;
      CAPTURE(error.what());
      REQUIRE(std::sscanf(error.what(), "line %zu, column %zu (byte %zu): ", &line, &column, &byte) == 3);
      CHECK(byte <= text.size());
      CHECK(line == 1 + static_cast<std::size_t>(std::count(
                            text.begin(), text.begin() + static_cast<std::ptrdiff_t>(byte), '\n')));
    }
  }
}

}  // namespace

TEST_CASE("JSON must accept: structures") {
  accepts({"[]", "{}", "[[]]", "[[],[[]]]", "[{}]", "{\"a\":[]}", "{\"a\":{}}", "[ ]", "{ }", "[1 , 2]",
           "{ \"a\" : 1 }", "[\n1\n,\r\n2\t]", "{\"\":0}", "{\"a\":1,\"b\":2}", "{\"a\\u0000b\":1}",
           "[null,true,false,0,\"\",[],{}]", "[1,null,null,2]", "{\"a\":\"b\",\"a \":\"c\"}",
           "{\"x\":[{\"id\":\"xx\"}],\"id\":\"xx\"}"});
}

TEST_CASE("JSON must accept: a value of any kind as the whole text") {
  accepts({"null", "true", "false", "0", "-0", "42", "-1.5e3", "\"\"", "\"a\"", "[]", "{}"});
}

TEST_CASE("JSON must accept: numbers") {
  accepts({"[0]",
           "[-0]",
           "[-0.0]",
           "[1]",
           "[-1]",
           "[123]",
           "[0.5]",
           "[123.456789]",
           "[0e1]",
           "[0e+1]",
           "[0E-1]",
           "[1e2]",
           "[1E2]",
           "[1e+2]",
           "[1e-2]",
           "[1.5E+2]",
           "[20e1]",
           "[1E22]",
           "[123e45]",
           "[-123123123123]",
           "[0.00000000000000000000000000000000000001]",
           "[-0.000000000000000000000000000000000000000000000000000000000000000000000000000001]",
           "[1e0001]",
           "[9007199254740993]",
           "[-9223372036854775808]",
           "[100000000000000000000]",
           "[1.7976931348623157e308]",
           "[5e-324]"});
}

TEST_CASE("JSON must accept: strings") {
  accepts({R"([""])",
           R"([" "])",
           R"(["\u0060\u012a\u12AB"])",
           R"(["\uD801\udc37"])",
           R"(["\ud83d\ude39\ud83d\udc8d"])",
           R"(["\"\\\/\b\f\n\r\t"])",
           R"(["\\u0000"])",
           R"(["\u0000"])",
           R"(["a/*b*/c//d#e"])",
           R"(["\\a"])",
           R"(["\\n"])",
           R"(["\uFFFF"])",
           R"(["\uFFFE"])",
           R"(["\uDBFF\uDFFF"])",
           R"(["\u2028\u2029"])",
           "[\"\u2028\u2029\"]",
           "[\"\x7F\"]",
           "[\"\uFFFF\"]",
           "[\"\U0010FFFF\"]",
           "[\"\u0915\u094b\u0902\u0915\u0923\u0940\"]",
           "[\"\uFEFF\"]",
           R"(["\u005C"])",
           R"(["\u0022"])",
           R"(["new\u000Aline"])"});
}

TEST_CASE("JSON must refuse: structures") {
  refuses({"",
           " ",
           "[",
           "]",
           "{",
           "}",
           "[1",
           "[1,",
           "[1,]",
           "[,1]",
           "[1,,2]",
           "[,]",
           "[1 true]",
           "[1]]",
           "[]]",
           "[1]x",
           "[][]",
           "{}}",
           "{]",
           "[}",
           "[\"a\"",
           "[\"a\",",
           "[1:2]",
           "[x",
           "[a]",
           "[\"x\"]]",
           "[*]",
           "{\"a\"}",
           "{\"a\":}",
           "{\"a\":1,}",
           "{\"a\":1,,\"b\":2}",
           "{,\"a\":1}",
           "{\"a\" \"b\"}",
           "{\"a\"::1}",
           "{\"a\",1}",
           "{:1}",
           "{1:1}",
           "{a:1}",
           "{'a':1}",
           "{null:1}",
           "{\"a\":1 \"b\":2}",
           "{\"a\":\"b\"}#",
           "{\"a\":\"b\"}/**/",
           "{\"a\":/*c*/1}",
           "[1]// c",
           "{\"a\":1",
           "{\"a\"",
           "{\"a",
           "{\"a\":1}{}",
           "[\v1]",
           "[\f]",
           "[1\u00a0]",
           "[\u2060]",
           "<.>",
           "[<null>]",
           "\\u0020[]",
           "[\"a\"\n\\n]",
           "{[]:1}",
           "1,2",
           "\xEF\xBB\xBF",
           bytes("[1]\0"),
           bytes("\0"),
           bytes("[\0]"),
           bytes("[1\0,2]")});
}

TEST_CASE("JSON must refuse: words") {
  refuses({"nul", "nulll", "tru", "truee", "fals", "True", "NULL", "NaN", "-NaN", "Infinity", "-Infinity",
           "inf", "undefined", "[nu", "[tru]", "[fals", "truefalse", bytes("nul\0")});
}

TEST_CASE("JSON must refuse: numbers") {
  refuses({"[+1]",    "[++1]",   "[-]",     "[--1]",   "[- 1]",    "[-+1]",   "[01]",   "[-01]",
           "[00]",    "[-012]",  "[.5]",    "[-.5]",   "[1.]",     "[-1.]",   "[1.e1]", "[0.e1]",
           "[.e1]",   "[1e]",    "[1e+]",   "[1E-]",   "[0e]",     "[0e+-1]", "[1ee2]", "[1e1.5]",
           "[1.2.3]", "[1e.5]",  "[0x1]",   "[0xF]",   "[1a]",     "[-a]",    "[1.5x]", "[1 000.0]",
           "[1_000]", "[1/2]",   "[1+2]",   "[0.1.2]", "[\uff11]", "[1e1e1]", "[9.e+]", "1-",
           "1.2a-3",  "[1e+-2]", "[1\xE5]", "[0\xE5]", "[-\xE5]"});
}

TEST_CASE("JSON must refuse: strings") {
  refuses({"\"",
           "[\"",
           "[\"a",
           "'a'",
           "[a\"",
           "\"a\n\"",
           "\"a\tb\"",
           "\"\x1F\"",
           R"("\")",
           R"("\)",
           R"("\a")",
           R"("\x41")",
           R"("\'")",
           R"("\0")",
           R"("\U0041")",
           R"("\u")",
           R"("\u1")",
           R"("\u12")",
           R"("\u123")",
           R"("\u123g")",
           R"("\u 123")",
           R"("\u-123")",
           R"("\u0x12")",
           R"("\uD834\u")",
           R"("\uD834\uD)",
           R"("\uD834\)",
           "\"\\\xF0\x9F\x98\x80\"",
           "\"\\\n\"",
           "\"a\"\"b\"",
           "\"a\"b",
           bytes("\"a\0b\""),
           bytes("\"\\\0\""),
           "\"\\u00\xC3\xA5\""});
}

TEST_CASE("JSON must refuse: bytes that are not UTF-8") {
  refuses({"\"\x80\"",
           "\"\xBF\"",
           "\"\xC0\x80\"",
           "\"\xC1\xBF\"",
           "\"\xC3\"",
           "\"\xC3\x28\"",
           "\"\xE0\x80\x80\"",
           "\"\xE0\x9F\xBF\"",
           "\"\xE2\x82\"",
           "\"\xED\xA0\x80\"",
           "\"\xED\xBF\xBF\"",
           "\"\xF0\x80\x80\x80\"",
           "\"\xF0\x8F\xBF\xBF\"",
           "\"\xF0\x9F\x98\"",
           "\"\xF4\x90\x80\x80\"",
           "\"\xF5\x80\x80\x80\"",
           "\"\xF8\x88\x80\x80\x80\"",
           "\"\xFC\x84\x80\x80\x80\x80\"",
           "\"\xFE\"",
           "\"\xFF\"",
           "{\"\xFF\":1}",
           "\xFF",
           "[1]\xFF",
           bytes("[\0\"\0a\0\"\0]\0")});
}

TEST_CASE("JSON left to the parser: refused here") {
  refuses({"\xEF\xBB\xBF{}", "[1e400]", "[-1e400]", "[1e-400]", "[123.456e-789]", "[-1e+9999]",
           R"(["\uD800"])", R"(["\uDC00"])", R"(["\uD800\u0041"])", R"(["\uD800\uD800"])",
           R"(["\uDC00\uD800"])", R"(["\uD800\n"])", R"({"a":1,"a":2})", R"({"a":1,"\u0061":1})"});
  refuses({"[" + std::string(400, '9') + "]", std::string(500, '[') + std::string(500, ']')});
}

TEST_CASE("JSON left to the parser: integers beyond 64 bits become doubles") {
  CHECK(Json::parse("[18446744073709551616]").at(0).as_number() == 18446744073709551616.0);
  CHECK(Json::parse("-9223372036854775809").as_number() == -9223372036854775808.0);
}

TEST_CASE("JSON: the place of an error is that of the fault") {
  const auto place = [](const std::string& text) {
    try {
      (void)Json::parse(text);
    } catch (const JsonError& error) {
      const std::string what = error.what();
      return what.substr(0, what.find(':'));
    }
    return std::string("accepted");
  };
  CHECK(place("{\n  \"a\": [1,\n    2 3]\n}") == "line 3, column 7 (byte 19)");
  CHECK(place("[\"\\ud800\"]") == "line 1, column 3 (byte 2)");
  CHECK(place("[1,\n1e999]") == "line 2, column 1 (byte 4)");
  CHECK(place("[\"a\xFF\"]") == "line 1, column 4 (byte 3)");
  CHECK(place("[\"abc") == "line 1, column 2 (byte 1)");
  CHECK(place("[[[[") == "line 1, column 5 (byte 4)");
}

TEST_CASE("JSON: depth, size and number of values are bounded, and the bounds can be set") {
  const auto nested = [](int depth) {
    std::string text;
    for (int i = 0; i < depth; ++i) text += i % 2 == 0 ? "[" : "{\"a\":";
    text += "0";
    for (int i = depth; i-- > 0;) text += i % 2 == 0 ? "]" : "}";
    return text;
  };
  CHECK_NOTHROW(Json::parse(nested(64)));
  CHECK_THROWS_WITH(Json::parse(nested(65)), Contains("nested more than 64 deep"));
  CHECK_NOTHROW(Json::parse(nested(3), {.max_depth = 3}));
  CHECK_THROWS_WITH(Json::parse(nested(4), {.max_depth = 3}),
                    "line 1, column 8 (byte 7): nested more than 3 deep");
  CHECK_NOTHROW(Json::parse("1", {.max_depth = 0}));
  CHECK_THROWS_AS(Json::parse("[]", {.max_depth = 0}), JsonError);
  CHECK_NOTHROW(Json::parse("[0,{\"a\":\"\"}]", {.max_values = 4}));
  CHECK_THROWS_WITH(Json::parse("[0,{\"a\":\"\"}]", {.max_values = 3}),
                    "line 1, column 9 (byte 8): more than 3 values");
  CHECK_THROWS_WITH(Json::parse("[1,2]", {.max_bytes = 4}), Contains("5 bytes, more than the 4 allowed"));
  std::string many = "[0";
  for (int i = 0; i < 1 << 24; ++i) many += ",0";
  CHECK_THROWS_WITH(Json::parse(many + "]"), Contains("more than 16777216 values"));
}

TEST_CASE("JSON: a duplicate key is named by its beginning, in whole characters") {
  const std::string key = "x" + std::string(1'000'000, 'k'), marks = [] {
    std::string text = "x";
    for (int i = 0; i < 100; ++i) text += "\u0915";
    return text;
  }();
  CHECK_THROWS_WITH(Json::parse("{\"" + key + "\":1,\"" + key + "\":2}"),
                    Contains("duplicate key \"" + key.substr(0, 60) + "\""));
  CHECK_THROWS_WITH(Json::parse("{\"" + marks + "\":1,\"" + marks + "\":2}"),
                    Contains("duplicate key \"" + marks.substr(0, 58) + "\""));
}
