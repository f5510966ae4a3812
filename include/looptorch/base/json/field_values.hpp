// SPDX-License-Identifier: MIT
// The values that a config's fields may have, by type: which limits there are, and what is said of a value
// that is outside. Used by config_fields.hpp.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/json/json.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>

namespace looptorch {

/// Which values a field of a config may have: none beside its type's, for a bool and a text.
template <class Value>
struct FieldLimits {};

/// Integers from `min` to `max`, both included.
template <detail::JsonInteger Value>
struct FieldLimits<Value> {
  Value min = std::numeric_limits<Value>::min();
  Value max = std::numeric_limits<Value>::max();
};

/// Numbers from `min`, included, to `below`, excluded; never NaN.
template <class Value>
requires std::is_floating_point_v<Value>
struct FieldLimits<Value> {
  Value min = std::numeric_limits<Value>::lowest();
  Value below = std::numeric_limits<Value>::infinity();
};

/// The names of the enumerators 0, 1, ..., as JSON has them: `{"before", "after"}`.
template <class Value>
requires std::is_enum_v<Value>
struct FieldLimits<Value> {
  std::array<const char*, 16> names{};

  [[nodiscard]] constexpr std::size_t count() const {
    return static_cast<std::size_t>(std::find(names.begin(), names.end(), nullptr) - names.begin());
  }
};

namespace detail {

/// Returns the limits as `describe` shows them; empty where there are none.
template <class Value>
[[nodiscard]] std::string limits_text(const FieldLimits<Value>& limits) {
  std::string text;
  if constexpr (std::is_enum_v<Value>) {
    for (std::size_t i = 0; i < limits.count(); ++i)
      text += message(i == 0 ? "" : i + 1 == limits.count() ? " or " : ", ", '"', limits.names[i], '"');
  } else if constexpr (std::is_floating_point_v<Value>) {
    constexpr FieldLimits<Value> kNone;
    if (limits.min != kNone.min || limits.below != kNone.below)
      text = message('[', limits.min, ", ", limits.below, ')');
  } else if constexpr (JsonInteger<Value>) {
    constexpr FieldLimits<Value> kNone;
    if (limits.min != kNone.min || limits.max != kNone.max)
      text = message(std::int64_t{limits.min}, "..", std::int64_t{limits.max});
  }
  return text;
}

/// Returns that a value, as messages show it, is outside the limits, to stand behind its key.
template <class Value>
[[nodiscard]] std::string outside(const std::string& value, const FieldLimits<Value>& limits) {
  if constexpr (std::is_enum_v<Value>) {
    if (limits.count() == 2)
      return message(" is ", value, ", neither \"", limits.names[0], "\" nor \"", limits.names[1], '"');
    return message(" is ", value, ", not ", limits_text(limits));
  } else if constexpr (JsonInteger<Value>) {
    return message(" is ", value, ", outside ", std::int64_t{limits.min}, "..", std::int64_t{limits.max});
  } else if constexpr (std::is_floating_point_v<Value>) {
    return message(" is ", value, ", outside [", limits.min, ", ", limits.below, ')');
  } else {
    return {};
  }
}

/// Returns a value as messages show it.
template <class Value>
[[nodiscard]] std::string value_text(const Value& value, const FieldLimits<Value>& limits) {
  if constexpr (std::is_enum_v<Value>) {
    const auto number = static_cast<std::size_t>(value);
    return number < limits.count() ? limits.names[number] : message(number);
  } else if constexpr (std::is_same_v<Value, bool>) {
    return value ? "true" : "false";
  } else if constexpr (JsonInteger<Value>) {
    return message(std::int64_t{value});
  } else {
    return message(value);
  }
}

/// Returns what is wrong with a value, to stand behind its key; empty if it is within its limits.
template <class Value>
[[nodiscard]] std::string fault_of(const Value& value, const FieldLimits<Value>& limits) {
  bool fits = true;
  if constexpr (std::is_enum_v<Value>)
    fits = static_cast<std::size_t>(value) < limits.count();
  else if constexpr (std::is_floating_point_v<Value>)
    fits = value >= limits.min && value < limits.below;
  else if constexpr (JsonInteger<Value>)
    fits = value >= limits.min && value <= limits.max;
  return fits ? std::string() : outside(value_text(value, limits), limits);
}

[[nodiscard]] inline std::string wrong_kind(const char* wanted, const Json& found) {
  return message(" must be ", wanted, ", is ", found.dump());
}

/// Reads and checks a value; returns what is wrong with it, to stand behind its key, or an empty text.
template <class Value>
[[nodiscard]] std::string read_value(const Json& json, const FieldLimits<Value>& limits, Value& to) {
  if constexpr (std::is_enum_v<Value>) {
    if (!json.is_string()) return wrong_kind("a string", json);
    for (std::size_t i = 0; i < limits.count(); ++i) {
      if (json.as_string() != limits.names[i]) continue;
      to = static_cast<Value>(i);
      return {};
    }
    return outside(json.dump(), limits);
  } else if constexpr (std::is_same_v<Value, bool>) {
    if (!json.is_bool()) return wrong_kind("true or false", json);
    to = json.as_bool();
    return {};
  } else if constexpr (JsonInteger<Value>) {
    if (!json.is_int()) return wrong_kind("an integer", json);
    const auto number = json.as_int();
    if (number < std::int64_t{limits.min} || number > std::int64_t{limits.max})
      return outside(std::to_string(number), limits);
    to = static_cast<Value>(number);
    return {};
  } else if constexpr (std::is_floating_point_v<Value>) {
    if (!json.is_number()) return wrong_kind("a number", json);
    to = static_cast<Value>(json.as_number());
    return fault_of(to, limits);
  } else {
    static_assert(std::is_same_v<Value, std::string>,
                  "a field of a config is an integer, a number, a bool, a std::string or an enumeration");
    if (!json.is_string()) return wrong_kind("a string", json);
    to = json.as_string();
    return {};
  }
}

/// Returns a value as JSON has it.
template <class Value>
[[nodiscard]] Json to_json(const Value& value, const FieldLimits<Value>& limits) {
  if constexpr (std::is_enum_v<Value>)
    return value_text(value, limits);
  else if constexpr (std::is_floating_point_v<Value>)
    return static_cast<double>(value);
  else
    return value;
}

}  // namespace detail
}  // namespace looptorch
