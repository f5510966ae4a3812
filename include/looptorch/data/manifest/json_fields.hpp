// SPDX-License-Identifier: MIT
// Reads the fields of one JSON object of a manifest or transcript, with checked types. Its errors name no
// line; the caller adds it.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/json/json.hpp>
#include <looptorch/data/manifest/utterance.hpp>

#include <cmath>
#include <optional>
#include <string>
#include <string_view>

namespace looptorch::detail {

class JsonFields {
 public:
  /// Keeps a reference to `object`. Throws ManifestError if it is not an object.
  explicit JsonFields(const Json& object) : object_(object) {
    if (!object.is_object()) throw ManifestError(message("expected a JSON object, found ", object.kind()));
  }

  /// True if there is a value, and it is not null.
  [[nodiscard]] bool present(std::string_view key) const {
    return object_.contains(key) && !object_.at(key).is_null();
  }

  /// Returns a string. A NUL in it, which damaged files have, is a fault: the system and terminals would cut
  /// the string off there.
  [[nodiscard]] std::string string(std::string_view key) const {
    const Json& value = needed(key);
    if (!value.is_string())
      throw ManifestError(message("\"", key, "\" must be a string, found ", value.kind()));
    if (value.as_string().find('\0') != std::string::npos)
      throw ManifestError(message("\"", key, "\" holds a NUL"));
    return value.as_string();
  }

  /// Returns a string, empty if there is none.
  [[nodiscard]] std::string optional_string(std::string_view key) const {
    return present(key) ? string(key) : std::string();
  }

  /// Returns a string that is not blank.
  [[nodiscard]] std::string filled_string(std::string_view key) const {
    std::string value = string(key);
    if (value.find_first_not_of(" \t\r\n") == std::string::npos)
      throw ManifestError(message("\"", key, "\" is empty"));
    return value;
  }

  [[nodiscard]] double seconds(std::string_view key) const {
    const Json& value = needed(key);
    if (!value.is_number())
      throw ManifestError(message("\"", key, "\" must be a number, found ", value.kind()));
    if (!std::isfinite(value.as_number())) throw ManifestError(message("\"", key, "\" must be finite"));
    return value.as_number();
  }

  [[nodiscard]] std::optional<double> optional_seconds(std::string_view key) const {
    return present(key) ? std::optional(seconds(key)) : std::nullopt;
  }

 private:
  [[nodiscard]] const Json& needed(std::string_view key) const {
    if (!object_.contains(key)) throw ManifestError(message("\"", key, "\" is missing"));
    return object_.at(key);
  }

  const Json& object_;
};

}  // namespace looptorch::detail
