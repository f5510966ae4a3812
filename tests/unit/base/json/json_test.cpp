// SPDX-License-Identifier: MIT
// Tests base/json: json_object, json_reader, json_writer
#include "support/precompiled.hpp"

#include <looptorch/base/json/json.hpp>

#include "support/wide_text.hpp"

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <string>
#include <vector>

using Catch::Contains;
using looptorch::Json;
using looptorch::JsonError;

namespace {

void refuses(const std::string& text, const std::string& message) {
  CAPTURE(text);
  REQUIRE_THROWS_WITH(Json::parse(text), Contains(message));
  REQUIRE_THROWS_AS(Json::parse(text), JsonError);
}

}  // namespace

TEST_CASE("JSON: each kind of value is read") {
  const auto json =
      Json::parse(R"( {"n": null, "t": true, "f": false, "i": -42, "d": 2.5e-1, "s": "x", "a": [1, "2"]} )");
  CHECK(json["n"].is_null());
  CHECK(json["t"].as_bool());
  CHECK_FALSE(json["f"].as_bool());
  CHECK(json["i"].as_int() == -42);
  CHECK(json["i"].as_number() == -42.0);
  CHECK(json["d"].as_number() == 0.25);
  CHECK(json["s"].as_string() == "x");
  CHECK(json["a"].as_array().size() == 2);
  CHECK(json["a"].at(1).as_string() == "2");
  CHECK(json.contains("a"));
  CHECK_FALSE(json.contains("b"));
  CHECK(json.get("i", 7).as_int() == -42);
  CHECK(json.get("b", 7).as_int() == 7);
}

TEST_CASE("JSON: the contents of a temporary outlive it") {
  const auto json = Json::parse(R"({"list": ["a string that is too long for the small string buffer"]})");
  for (const auto& element : json.get("list", Json::array()).as_array()) {
    CHECK(element.as_string() == "a string that is too long for the small string buffer");
  }
  for (const auto& [key, value] : Json::parse(R"({"a": 1})").as_object()) CHECK(key == "a");
}

TEST_CASE("JSON: integers are exact, larger numbers are doubles") {
  CHECK(Json::parse("9223372036854775807").as_int() == std::numeric_limits<std::int64_t>::max());
  CHECK(Json::parse("-9223372036854775808").as_int() == std::numeric_limits<std::int64_t>::min());
  CHECK(Json::parse("9007199254740993").as_int() == 9007199254740993);
  CHECK_FALSE(Json::parse("9223372036854775808").is_int());
  CHECK(Json::parse("9223372036854775808").as_number() == 9223372036854775808.0);
  CHECK_FALSE(Json::parse("1.0").is_int());
  CHECK(Json::parse("5e-324").as_number() == 5e-324);
  CHECK_THROWS_WITH(Json::parse("1.5").as_int(), Contains("expected an integer, found a number"));
}

TEST_CASE("JSON: escapes and UTF-8 in strings") {
  CHECK(Json::parse(R"("\"\\\/\b\f\n\r\t")").as_string() == "\"\\/\b\f\n\r\t");
  CHECK(Json::parse(R"("\u0041\u00e9\u0915\uD83D\uDE00")").as_string() == "A\u00e9\u0915\U0001F600");
  CHECK(Json::parse("\"\u0915\U0001F600\"").as_string() == "\u0915\U0001F600");
  CHECK(Json::parse(R"("\u0000")").as_string() == std::string(1, '\0'));
}

TEST_CASE("JSON: what RFC 8259 does not allow is refused, with its place") {
  refuses("", "line 1, column 1 (byte 0): expected a value");
  refuses("{\n \"a\": 1,\n \"a\": 2}", "line 3, column 2 (byte 12): duplicate key \"a\"");
  refuses("[1,]", "byte 3");
  refuses("[1 2]", "expected , or ]");
  refuses("{\"a\" 1}", "expected :");
  refuses("{\"a\":1,}", "expected a key");
  refuses("{a:1}", "expected a key");
  refuses("[1", "expected , or ]");
  refuses("1 1", "text after the end");
  refuses("01", "text after the end");
  refuses("+1", "expected a value");
  refuses("-", "expected a digit");
  refuses("1.", "expected a digit");
  refuses(".5", "expected a value");
  refuses("1e+", "expected a digit");
  refuses("1e999", "outside the range");
  refuses("nul", "expected a value");
  refuses("NaN", "expected a value");
  refuses("\"abc", "string without an end");
  refuses("\"a\nb\"", "control character");
  refuses("\"\\x\"", "unknown escape");
  refuses("\"\\", "unknown escape");
  refuses("\"\\u12\"", "four hex digits");
  refuses("\"\\u+123\"", "four hex digits");
  refuses("\"\\ud800\"", "unpaired surrogate");
  refuses("\"\\ude00\\ud83d\"", "unpaired surrogate");
  refuses("\"\\ud83d\\u0041\"", "unpaired surrogate");
  refuses("\"\xC0\xAF\"", "byte 1): not UTF-8");
  refuses("\"\xED\xA0\x80\"", "not UTF-8");
  refuses("\"\xE0\xA4\"", "not UTF-8");
  refuses(std::string("1\0", 2), "text after the end");
  refuses(std::string("\0", 1), "expected a value");
  refuses("// no\n1", "expected a value");
}

TEST_CASE("JSON: size and depth are bounded") {
  const std::string deep = std::string(64, '[') + std::string(64, ']');
  CHECK(Json::parse(deep).is_array());
  refuses("[" + deep + "]", "nested more than 64 deep");
  refuses(std::string(1'000'000, '['), "nested more than 64 deep");
  CHECK_THROWS_WITH(Json::parse("[1,2]", {.max_bytes = 4}), Contains("5 bytes, more than the 4 allowed"));
}

TEST_CASE("JSON: missing keys and other kinds are named") {
  const auto json = Json::parse(R"({"d_model": "big"})");
  CHECK_THROWS_WITH(json["layers"], Contains("\"layers\" is missing"));
  CHECK_THROWS_WITH(json["d_model"].as_int(), Contains("expected an integer, found a string"));
  CHECK_THROWS_WITH(json["d_model"]["x"], Contains("expected an object, found a string"));
  CHECK_THROWS_WITH(json.as_array(), Contains("expected an array, found an object"));
  CHECK_THROWS_WITH(Json::parse("[1]").at(1), Contains("element 1 is missing"));
}

TEST_CASE("JSON: objects keep their order, however large, and find what they hold") {
  Json json = Json::object();
  for (int i = 0; i < 1000; ++i) json.set("key" + std::to_string((i * 7919) % 1000), i);
  REQUIRE(json.as_object().size() == 1000);
  int i = 0;
  for (const auto& [key, value] : json.as_object()) {
    REQUIRE(value.as_int() == i);
    REQUIRE(&json.at(key) == &value);
    ++i;
  }
  CHECK_FALSE(json.contains("key1000"));
  json.set("key7", "replaced");
  CHECK(json.as_object().size() == 1000);
  CHECK(json["key7"].as_string() == "replaced");
}

TEST_CASE("JSON: what is written reads back equal") {
  const std::string compact =
      R"({"a":[1,2.5,1.0,-0.0,1e+300],"b":{},"c":[],"d":null,"e":"\u0001\"\\\n\t/","f":true})";
  const auto json = Json::parse(compact);
  CHECK(json.dump() == compact);
  CHECK(Json::parse(json.dump(2)) == json);
  CHECK(Json::parse(R"({"a": {"b": [1]}, "c": []})").dump(2) ==
        "{\n  \"a\": {\n    \"b\": [\n      1\n    ]\n  },\n  \"c\": []\n}");
  for (const double value : {0.1, 1e-320, 1.7976931348623157e308, 3.0, -1e21, 123456789012345680.0}) {
    CHECK(Json::parse(Json(value).dump()) == Json(value));
  }
  CHECK_THROWS_AS(Json(std::numeric_limits<double>::quiet_NaN()).dump(), JsonError);
  CHECK_THROWS_WITH(Json("a\xFF").dump(), Contains("not UTF-8 at its byte 1"));
}

TEST_CASE("JSON: equality looks at kind and value, not at the order of members") {
  CHECK(Json::parse(R"({"a":1,"b":2})") == Json::parse(R"({"b":2,"a":1})"));
  CHECK(Json::parse(R"({"a":1})") != Json::parse(R"({"a":1.0})"));
  CHECK(Json::parse("[1,2]") != Json::parse("[2,1]"));
  CHECK(Json::array(std::vector<std::int64_t>{1, 2}) == Json::parse("[1,2]"));
}

TEST_CASE("JSON: a file's name stands in its errors") {
  const std::string path = "json_test_malformed.json";
  std::FILE* file = std::fopen(path.c_str(), "w");
  std::fputs("{\"a\":\n?}", file);
  std::fclose(file);
  CHECK_THROWS_WITH(looptorch::load_json(path),
                    Contains(path + ": line 2, column 1 (byte 6): expected a value"));
  std::remove(path.c_str());
  CHECK_THROWS_AS(looptorch::load_json(path), looptorch::FileError);
}

TEST_CASE("JSON: time grows linearly with the number of members") {
  const auto milliseconds = [](int members) {
    std::string text = "{";
    for (int i = 0; i < members; ++i) text += "\"key" + std::to_string(i) + "\":" + std::to_string(i) + ",";
    text.back() = '}';
    const auto start = std::chrono::steady_clock::now();
    REQUIRE(Json::parse(text).as_object().size() == static_cast<std::size_t>(members));
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  };
  milliseconds(10'000);
  CHECK(milliseconds(320'000) < 100 * (1 + milliseconds(20'000)));
}

TEST_CASE("JSON: keys that all collide in libstdc++'s std::hash take no longer than others") {
  constexpr std::uint64_t kFactor = 0xc6a4a7935bd1e995, kInverse = 0x5f7a0ea7e59b19bd;  // of each other
  static_assert(kFactor * kInverse == 1);
  const auto unshift = [](std::uint64_t x) { return x ^ x >> 47; };
  const auto key_of = [&](std::uint64_t hash) {  // the 8 bytes that have this hash
    const auto state = unshift(unshift(hash) * kInverse) * kInverse ^ 0xc70f6907 ^ 8 * kFactor;
    const auto word = unshift(state * kInverse) * kInverse;
    return std::string(reinterpret_cast<const char*>(&word), sizeof(word));
  };
  const auto milliseconds = [&](int shift) {
    const auto start = std::chrono::steady_clock::now();
    looptorch::JsonObject object;
    for (std::uint64_t i = 0; i < 50'000; ++i) REQUIRE(object.insert(key_of(i << shift), 0));
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  };
  CHECK(milliseconds(20) < 10 * (1 + milliseconds(0)));
}

TEST_CASE("JSON: a text in UTF-16 or UTF-32, or with a byte order mark, says so") {
  using looptorch::testing::in_utf16;
  using looptorch::testing::in_utf32;
  const std::u32string text = U"{\"a\": 1}";
  for (const auto& marked : {text, U"\ufeff" + text}) {
    refuses(in_utf16(marked, false), "line 1, column 1 (byte 0): the text is in UTF-16LE, not UTF-8");
    refuses(in_utf16(marked, true), "the text is in UTF-16BE, not UTF-8");
    refuses(in_utf32(marked, false), "the text is in UTF-32LE, not UTF-8");
    refuses(in_utf32(marked, true), "the text is in UTF-32BE, not UTF-8");
  }
  refuses("\xef\xbb\xbf{}",
          "line 1, column 1 (byte 0): a byte order mark; save the file as UTF-8 without one");
}
