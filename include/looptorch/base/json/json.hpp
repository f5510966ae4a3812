// SPDX-License-Identifier: MIT
// Parses and writes JSON by RFC 8259: strict, UTF-8 only, bounded in size, depth and number of values.
// Refuses what the RFC leaves open: duplicate keys, a byte order mark, unpaired surrogates, and numbers
// beyond a double's range, including those that would round to 0. NaN and infinity are refused in both
// directions. Integers stay exact (int64), objects keep their order, and written text reads back equal. About
// 150 MB/s. Look-up in an object is O(1), so a tokenizer's vocabulary can be used directly.
#pragma once

#include <looptorch/base/error.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace looptorch {

/// Thrown for text that is not JSON (with line, column and byte), a missing key, or a value of another kind
/// than the accessor's.
struct JsonError : Error {
  using Error::Error;
};

/// Limits of the parser. Besides its text a value takes 56 bytes, a member of an object 88, and lists grow by
/// doubling. So `max_values` bounds the memory of a text such as "[0,0,0,...".
struct JsonLimits {
  std::size_t max_bytes = std::size_t{1} << 28;
  int max_depth = 64;
  std::size_t max_values = std::size_t{1} << 24;  ///< numbers, strings, arrays, objects, ... all together
};

class Json;
using JsonArray = std::vector<Json>;
using JsonMember = std::pair<std::string, Json>;

namespace detail {
class JsonWriter;

/// Integers that fit into int64.
template <class T>
concept JsonInteger = std::is_integral_v<T> && !std::is_same_v<T, bool> &&
                      (std::is_signed_v<T> || sizeof(T) < sizeof(std::int64_t));

}  // namespace detail

/// Keeps members in the order in which they were inserted. Look-up by key is O(1).
class JsonObject {
 public:
  [[nodiscard]] const Json* find(std::string_view key) const;
  [[nodiscard]] Json* find(std::string_view key);

  /// Appends and returns true, or returns false if the key exists.
  bool insert(std::string key, Json value);

  [[nodiscard]] std::size_t size() const;
  [[nodiscard]] bool empty() const { return size() == 0; }
  [[nodiscard]] std::vector<JsonMember>::const_iterator begin() const;
  [[nodiscard]] std::vector<JsonMember>::const_iterator end() const;

  /// True if both have equal members, in any order.
  friend bool operator==(const JsonObject& a, const JsonObject& b);

 private:
  [[nodiscard]] std::size_t position(std::string_view key) const;
  void index(std::size_t member);
  void rebuild_index(std::size_t slots);

  std::vector<JsonMember> members_;
  std::vector<std::uint32_t> slots_;  ///< Open addressing: 1 + position, 0 is free. Empty if few members.
};

/// A JSON value. Accessors throw JsonError if the value is of another kind. They never convert, except that
/// `as_number` accepts an integer.
class Json {
 public:
  Json() = default;
  Json(std::nullptr_t) {}
  Json(bool value) : value_(value) {}
  template <detail::JsonInteger T>
  Json(T value) : value_(static_cast<std::int64_t>(value)) {}
  Json(double value) : value_(value) {}
  Json(std::string value) : value_(std::move(value)) {}
  Json(std::string_view value) : value_(std::string(value)) {}
  Json(const char* value) : value_(std::string(value)) {}
  Json(JsonArray value) : value_(std::move(value)) {}
  Json(JsonObject value) : value_(std::move(value)) {}

  /// Makes an array from a list, `Json::array({1, 2})`, or from a range of anything that a Json can be made
  /// from, `Json::array(ids)`. An object is made by `Json::object()` and then `set`.
  [[nodiscard]] static Json array(std::initializer_list<Json> values = {}) { return JsonArray(values); }
  template <class Range>
  [[nodiscard]] static Json array(const Range& values) {
    return JsonArray(std::begin(values), std::end(values));
  }
  [[nodiscard]] static Json object() { return JsonObject{}; }

  /// Parses a whole text. Throws JsonError.
  [[nodiscard]] static Json parse(std::string_view text, JsonLimits limits = {});

  /// Returns the text, on one line or with `indent` spaces a level. Throws JsonError for a string that is not
  /// UTF-8 and for a number that is not finite.
  [[nodiscard]] std::string dump(int indent = 0) const;

  [[nodiscard]] bool is_null() const { return holds<std::nullptr_t>(); }
  [[nodiscard]] bool is_bool() const { return holds<bool>(); }
  [[nodiscard]] bool is_int() const { return holds<std::int64_t>(); }
  [[nodiscard]] bool is_number() const { return is_int() || holds<double>(); }
  [[nodiscard]] bool is_string() const { return holds<std::string>(); }
  [[nodiscard]] bool is_array() const { return holds<JsonArray>(); }
  [[nodiscard]] bool is_object() const { return holds<JsonObject>(); }

  [[nodiscard]] bool as_bool() const { return get_as<bool>("a boolean"); }
  [[nodiscard]] std::int64_t as_int() const { return get_as<std::int64_t>("an integer"); }
  [[nodiscard]] double as_number() const;
  [[nodiscard]] const std::string& as_string() const& { return get_as<std::string>("a string"); }
  [[nodiscard]] const JsonArray& as_array() const& { return get_as<JsonArray>("an array"); }
  [[nodiscard]] const JsonObject& as_object() const& { return get_as<JsonObject>("an object"); }
  // The accessors of a temporary return the contents by value, so that `for (auto& x :
  // json.get(...).as_array())` is safe.
  [[nodiscard]] std::string as_string() && { return take<std::string>("a string"); }
  [[nodiscard]] JsonArray as_array() && { return take<JsonArray>("an array"); }
  [[nodiscard]] JsonObject as_object() && { return take<JsonObject>("an object"); }

  /// Returns the member. Throws JsonError if there is none.
  [[nodiscard]] const Json& at(std::string_view key) const;
  [[nodiscard]] const Json& operator[](std::string_view key) const { return at(key); }
  /// Returns the element. Throws JsonError if there is none.
  [[nodiscard]] const Json& at(std::size_t index) const;
  [[nodiscard]] bool contains(std::string_view key) const { return as_object().find(key) != nullptr; }
  /// Returns the member, or `fallback` if it is absent.
  [[nodiscard]] Json get(std::string_view key, Json fallback) const;

  /// Adds or replaces a member of an object.
  Json& set(std::string_view key, Json value);
  /// Adds an element to an array.
  Json& push_back(Json value);

  /// Returns the kind as errors name it: "null", "a boolean", "an integer", ...
  [[nodiscard]] const char* kind() const;

  /// True if kind and value are the same. 1 and 1.0 differ.
  friend bool operator==(const Json& a, const Json& b);

 private:
  friend class detail::JsonWriter;

  template <class T>
  [[nodiscard]] bool holds() const {
    return std::holds_alternative<T>(value_);
  }
  template <class T>
  [[nodiscard]] const T& get_as(const char* expected) const {
    if (const auto* value = std::get_if<T>(&value_)) return *value;
    throw JsonError(message("expected ", expected, ", found ", kind()));
  }
  template <class T>
  [[nodiscard]] T take(const char* expected) {
    return std::move(const_cast<T&>(get_as<T>(expected)));
  }

  std::variant<std::nullptr_t, bool, std::int64_t, double, std::string, JsonArray, JsonObject> value_;
};

/// Parses a file. Throws FileError, or JsonError that names the file.
[[nodiscard]] Json load_json(const std::filesystem::path& path, JsonLimits limits = {});

}  // namespace looptorch

#include <looptorch/base/json/json_object.hpp>
#include <looptorch/base/json/json_reader.hpp>
#include <looptorch/base/json/json_writer.hpp>
