// SPDX-License-Identifier: MIT
// Implements Json::parse (json.hpp) by recursive descent: one pass over the text, one byte of look-ahead.
#pragma once

#include <looptorch/base/files/file.hpp>
#include <looptorch/base/json/json.hpp>
#include <looptorch/base/text/text_encoding.hpp>
#include <looptorch/base/text/utf8.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

namespace looptorch {
namespace detail {

class JsonReader {
 public:
  JsonReader(std::string_view text, JsonLimits limits) : text_(text), limits_(limits) {}

  Json read() {
    if (text_.size() > limits_.max_bytes) {
      throw JsonError(
          message("JSON text of ", text_.size(), " bytes, more than the ", limits_.max_bytes, " allowed"));
    }
    if (const auto encoding = find_wide_encoding(text_); !encoding.empty())
      fail(wide_encoding_fault(encoding));
    if (text_.starts_with("\xef\xbb\xbf")) fail("a byte order mark; save the file as UTF-8 without one");
    Json value = read_value(limits_.max_depth);
    skip_space();
    if (at_ < text_.size()) fail("text after the end of the value");
    return value;
  }

 private:
  [[noreturn]] void fail(std::string_view what) const { fail_at(at_, what); }
  [[noreturn]] void fail_at(std::size_t offset, std::string_view what) const {
    const auto before = text_.substr(0, offset);
    const auto line = 1 + std::count(before.begin(), before.end(), '\n');
    const auto column = offset - (before.rfind('\n') + 1);  // npos + 1 is 0
    throw JsonError(message("line ", line, ", column ", column + 1, " (byte ", offset, "): ", what));
  }

  /// Returns the next byte, or NUL at the end, which the grammar never accepts.
  [[nodiscard]] char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  [[nodiscard]] bool peek_digit() const { return peek() >= '0' && peek() <= '9'; }

  bool accept(char expected) {
    if (peek() != expected || at_ == text_.size()) return false;
    ++at_;
    return true;
  }

  void skip_space() {
    while (peek() == ' ' || peek() == '\n' || peek() == '\r' || peek() == '\t') ++at_;
  }

  Json read_value(int depth) {
    skip_space();
    if (values_++ >= limits_.max_values) fail(message("more than ", limits_.max_values, " values"));
    switch (peek()) {
      case '{':
        return read_object(depth);
      case '[':
        return read_array(depth);
      case '"':
        return read_string();
      case 't':
        return read_word("true", true);
      case 'f':
        return read_word("false", false);
      case 'n':
        return read_word("null", nullptr);
      default:
        return read_number();
    }
  }

  Json read_word(std::string_view word, Json value) {
    if (text_.substr(at_, word.size()) != word) fail("expected a value");
    at_ += word.size();
    return value;
  }

  void open(int depth) {
    if (depth <= 0) fail(message("nested more than ", limits_.max_depth, " deep"));
    ++at_;
    skip_space();
  }

  Json read_array(int depth) {
    open(depth);
    JsonArray values;
    if (accept(']')) return values;
    do {
      values.push_back(read_value(depth - 1));
      skip_space();
    } while (accept(','));
    if (!accept(']')) fail("expected , or ] in an array");
    return values;
  }

  Json read_object(int depth) {
    open(depth);
    JsonObject members;
    if (accept('}')) return members;
    do {
      read_member(members, depth);
      skip_space();
    } while (accept(','));
    if (!accept('}')) fail("expected , or } in an object");
    return members;
  }

  void read_member(JsonObject& members, int depth) {
    skip_space();
    const auto start = at_;
    if (peek() != '"') fail("expected a key");
    auto key = read_string();
    if (members.find(key)) fail_at(start, message("duplicate key \"", beginning_of(key), "\""));
    skip_space();
    if (!accept(':')) fail("expected : after a key");
    members.insert(std::move(key), read_value(depth - 1));
  }

  /// Returns at most about 60 bytes of a key, in whole characters, for a message.
  [[nodiscard]] static std::string_view beginning_of(std::string_view key) {
    std::size_t size = std::min<std::size_t>(key.size(), 60);
    while (size < key.size() && (static_cast<unsigned char>(key[size]) & 0xC0) == 0x80) --size;
    return key.substr(0, size);
  }

  std::string read_string() {
    const auto start = at_++;
    std::string out;
    for (;;) {
      const auto plain = at_;
      while (at_ < text_.size() && is_plain(text_[at_])) ++at_;
      out.append(text_, plain, at_ - plain);
      if (at_ == text_.size()) fail_at(start, "string without an end");
      if (accept('"')) return out;
      read_special(out);
    }
  }

  /// True for ASCII that stands for itself inside a string.
  [[nodiscard]] static bool is_plain(char c) {
    return static_cast<unsigned char>(c) >= 0x20 && static_cast<unsigned char>(c) < 0x80 && c != '"' &&
           c != '\\';
  }

  void read_special(std::string& out) {
    if (accept('\\')) return read_escape(out);
    const auto step = utf8_step(text_, at_);
    if (!step.valid) fail("not UTF-8");
    if (step.code_point < 0x20) fail("control character in a string");
    out.append(text_, at_, step.size);
    at_ += step.size;
  }

  void read_escape(std::string& out) {
    static constexpr std::string_view kNames = "\"\\/bfnrt", kValues = "\"\\/\b\f\n\r\t";
    if (accept('u')) return append_utf8(out, read_escaped_code_point());
    const auto which = at_ < text_.size() ? kNames.find(text_[at_]) : std::string_view::npos;
    if (which == std::string_view::npos) fail("unknown escape");
    out.push_back(kValues[which]);
    ++at_;
  }

  /// Reads what follows "\u". A surrogate without its partner is an error, since it stands for no character.
  char32_t read_escaped_code_point() {
    const auto start = at_ - 2;
    const char32_t high = read_hex4();
    if (high < 0xD800 || high > 0xDFFF) return high;
    if (high > 0xDBFF || !accept('\\') || !accept('u')) fail_at(start, "unpaired surrogate");
    const char32_t low = read_hex4();
    if (low < 0xDC00 || low > 0xDFFF) fail_at(start, "unpaired surrogate");
    return 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
  }

  char32_t read_hex4() {
    const auto digits = text_.substr(at_, 4);
    unsigned value = 0;
    const auto [end, code] = std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
    if (digits.size() < 4 || code != std::errc{} || end != digits.data() + 4) {
      fail("expected four hex digits");
    }
    at_ += 4;
    return value;
  }

  void skip_digits() {
    if (!peek_digit()) fail("expected a digit");
    while (peek_digit()) ++at_;
  }

  Json read_number() {
    const auto start = at_;
    const bool negative = accept('-');
    if (!negative && !peek_digit()) fail("expected a value");
    if (!accept('0')) skip_digits();
    bool is_integer = true;
    if (accept('.')) {
      is_integer = false;
      skip_digits();
    }
    if (accept('e') || accept('E')) {
      accept('+') || accept('-');
      is_integer = false;
      skip_digits();
    }
    return convert_number(start, is_integer);
  }

  Json convert_number(std::size_t start, bool is_integer) const {
    const char *first = text_.data() + start, *last = text_.data() + at_;
    std::int64_t integer = 0;
    if (is_integer && std::from_chars(first, last, integer).ec == std::errc{}) return integer;
    double number = 0;
    const auto code = std::from_chars(first, last, number).ec;
    if (code != std::errc{} || !std::isfinite(number)) fail_at(start, "number outside the range of a double");
    return number;
  }

  std::string_view text_;
  JsonLimits limits_;
  std::size_t at_ = 0, values_ = 0;
};

}  // namespace detail

inline Json Json::parse(std::string_view text, JsonLimits limits) {
  return detail::JsonReader(text, limits).read();
}

inline Json load_json(const std::filesystem::path& path, JsonLimits limits) {
  const auto text = read_file(path, limits.max_bytes);
  try {
    return Json::parse(text, limits);
  } catch (const JsonError& error) {
    throw JsonError(message(path.string(), ": ", error.what()));
  }
}

}  // namespace looptorch
