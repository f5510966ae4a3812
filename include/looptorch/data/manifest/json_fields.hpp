// SPDX-License-Identifier: MIT
// The fields of one JSON object of a manifest or transcript, each with its kind checked. Errors do not yet
// know where they are.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/json/json.hpp>
#include <looptorch/data/manifest/utterance.hpp>

#include <cmath>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

namespace looptorch::detail {

/// Whether it is a file that can be opened; of a name that no file system takes, false as well.
[[nodiscard]] inline bool is_file(const std::filesystem::path& path) {
  std::error_code ignored;
  return path.native().find('\0') == std::string::npos && std::filesystem::is_regular_file(path, ignored);
}

class JsonFields {
 public:
  /// Throws ManifestError for what is no object. Keeps a reference.
  explicit JsonFields(const Json& object) : object_(object) {
    if (!object.is_object()) throw ManifestError(message("expected a JSON object, found ", object.kind()));
  }

  /// Whether there is a value, and not null.
  [[nodiscard]] bool present(std::string_view key) const {
    return object_.contains(key) && !object_.at(key).is_null();
  }

  [[nodiscard]] std::string string(std::string_view key) const {
    const Json& value = needed(key);
    if (!value.is_string())
      throw ManifestError(message("\"", key, "\" must be a string, found ", value.kind()));
    return value.as_string();
  }

  /// A string of more than blanks.
  [[nodiscard]] std::string filled_string(std::string_view key) const {
    std::string value = string(key);
    if (value.find_first_not_of(" \t\r\n") == std::string::npos)
      throw ManifestError(message("\"", key, "\" is empty"));
    return value;
  }

  /// A filled string of which the system sees all; it would take a NUL for its end.
  [[nodiscard]] std::string file_name(std::string_view key) const {
    std::string value = filled_string(key);
    if (value.find('\0') != std::string::npos) throw ManifestError(message("\"", key, "\" holds a NUL"));
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
