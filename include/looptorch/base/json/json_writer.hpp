// SPDX-License-Identifier: MIT
// Implements Json::dump: writes the shortest numbers that read back equal, and text as UTF-8. Include
// json.hpp instead.
#pragma once

#include <looptorch/base/json/json.hpp>
#include <looptorch/base/tensors/visit_held.hpp>
#include <looptorch/base/text/utf8.hpp>

#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace looptorch {
namespace detail {

class JsonWriter {
 public:
  explicit JsonWriter(int indent) : indent_(indent) {}

  [[nodiscard]] std::string write(const Json& value) {
    put(value);
    return std::move(out_);
  }

 private:
  void put(const Json& value) {
    visit_held([this](const auto& held) { put_value(held); }, value.value_);
  }

  void put_value(std::nullptr_t) { out_ += "null"; }
  void put_value(bool value) { out_ += value ? "true" : "false"; }
  void put_value(std::int64_t value) { out_ += std::to_string(value); }
  void put_value(const std::string& value) { put_string(value); }

  void put_value(double value) {
    if (!std::isfinite(value)) throw JsonError("JSON has no infinities and no NaN");
    std::array<char, 32> digits;
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
    const std::string_view text(digits.data(), static_cast<std::size_t>(end - digits.data()));
    out_ += text;
    if (text.find_first_of(".e") == std::string_view::npos) out_ += ".0";
  }

  void put_value(const JsonArray& values) {
    put_list('[', ']', values, [this](const Json& value) { put(value); });
  }

  void put_value(const JsonObject& members) {
    put_list('{', '}', members, [this](const JsonMember& member) {
      put_string(member.first);
      out_ += indent_ > 0 ? ": " : ":";
      put(member.second);
    });
  }

  template <class List, class PutElement>
  void put_list(char open, char close, const List& list, PutElement put_element) {
    out_ += open;
    ++depth_;
    bool is_first = true;
    for (const auto& element : list) {
      if (!std::exchange(is_first, false)) out_ += ',';
      new_line();
      put_element(element);
    }
    --depth_;
    if (!is_first) new_line();
    out_ += close;
  }

  void new_line() {
    if (indent_ > 0) out_.append(1, '\n').append(static_cast<std::size_t>(indent_ * depth_), ' ');
  }

  void put_string(std::string_view text) {
    if (const auto fault = find_invalid_utf8(text); fault != std::string_view::npos) {
      throw JsonError(message("a string is not UTF-8 at its byte ", fault));
    }
    out_ += '"';
    for (const char c : text) put_character(c);
    out_ += '"';
  }

  void put_character(char c) {
    static constexpr std::string_view kNames = "\"\\bfnrt", kValues = "\"\\\b\f\n\r\t",
                                      kHex = "0123456789abcdef";
    if (const auto which = kValues.find(c); which != std::string_view::npos) {
      out_.append({'\\', kNames[which]});
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out_.append("\\u00").append(
          {kHex[static_cast<std::size_t>(c) >> 4], kHex[static_cast<std::size_t>(c) & 15]});
    } else {
      out_ += c;
    }
  }

  std::string out_;
  int indent_;
  int depth_ = 0;
};

}  // namespace detail

inline std::string Json::dump(int indent) const { return detail::JsonWriter(indent).write(*this); }

}  // namespace looptorch
