// SPDX-License-Identifier: MIT
// Declares the rows of the table that describes a config struct (config_fields.hpp). `ConfigField` is a
// member with its limits. `RequiredValue` is a JSON key that must be present with one value, such as
// "model_type". `OnlyValue` is a key that may be absent, but must not have another value. Also reads, formats
// and checks single values. Include config_fields.hpp instead.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/json/json.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>

namespace looptorch {

/// Limits the values of a config's field. A bool and a text have no limits.
template <class Value>
struct FieldLimits {};

/// Allows integers from `min` to `max`, both included.
template <detail::JsonInteger Value>
struct FieldLimits<Value> {
  Value min = std::numeric_limits<Value>::min();
  Value max = std::numeric_limits<Value>::max();
};

/// Allows numbers from `min`, included, to `below`, excluded; never NaN.
template <class Value>
requires std::is_floating_point_v<Value>
struct FieldLimits<Value> {
  Value min = std::numeric_limits<Value>::lowest();
  Value below = std::numeric_limits<Value>::infinity();
};

/// Lists the names of the enumerators 0, 1, ... in JSON: `{"before", "after"}`. Allows no others.
template <class Value>
requires std::is_enum_v<Value>
struct FieldLimits<Value> {
  std::array<const char*, 16> names{};

  [[nodiscard]] constexpr std::size_t count() const {
    return static_cast<std::size_t>(std::find(names.begin(), names.end(), nullptr) - names.begin());
  }
};

/// Describes a member of a config struct: `ConfigField("heads", &ModelConfig::heads, {.min = 1, .max = 64})`.
/// `Value` is an integer up to int64, a float, a double, a bool, a std::string or an enumeration; see
/// FieldLimits.
template <class Config, class Value>
struct ConfigField {
  const char* key;
  Value Config::*member;
  FieldLimits<Value> limits;
  const char* help;  ///< what `describe` says of it
  bool is_optional = false;

  constexpr ConfigField(const char* key_, Value Config::*member_, FieldLimits<Value> limits_ = {},
                        const char* help_ = "")
      : key(key_), member(member_), limits(limits_), help(help_) {}

  /// Returns this row for a key that may be absent. The member then keeps the struct's default.
  [[nodiscard]] constexpr ConfigField optional() const {
    auto field = *this;
    field.is_optional = true;
    return field;
  }
};

/// Describes a key with one value that names the config's kind, such as "model_type". No member holds it. It
/// is always written. A config without it, or with another value, is refused before other keys are checked.
template <class Value>
struct RequiredValue {
  const char* key;
  Value value;
  static constexpr bool tells_kind = true;
  constexpr RequiredValue(const char* key_, Value value_) : key(key_), value(value_) {}
};

/// Describes a setting that cannot be varied. It is always written; a config that is read may lack it, but
/// must not have another value.
template <class Value>
struct OnlyValue {
  const char* key;
  Value value;
  constexpr OnlyValue(const char* key_, Value value_) : key(key_), value(value_) {}
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

/// Returns the fault of a value outside the limits, as text that follows the key in a message.
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

/// Returns a value's fault as text that follows its key; empty if the value is within its limits.
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

/// Reads and checks a value. Returns its fault as text that follows its key, or an empty text.
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
