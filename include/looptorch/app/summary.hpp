// SPDX-License-Identifier: MIT
// Writes a run's figures, such as its duration, to a JSON file. A program removes the old summary before it
// overwrites results, and writes the new summary last. So a folder that has a summary is complete.
#pragma once

#include <looptorch/base/files/atomic_file.hpp>
#include <looptorch/base/json/json.hpp>

#include <cmath>
#include <filesystem>
#include <string>
#include <string_view>

namespace looptorch::app {
namespace detail {

/// Returns the value with null for each number that is not finite.
[[nodiscard]] inline Json without_non_finite(const Json& value) {
  if (value.is_number() && !std::isfinite(value.as_number())) return {};
  if (value.is_array()) {
    auto list = Json::array();
    for (const Json& each : value.as_array()) list.push_back(without_non_finite(each));
    return list;
  }
  if (!value.is_object()) return value;
  auto object = Json::object();
  for (const auto& [key, each] : value.as_object()) object.set(key, without_non_finite(each));
  return object;
}

}  // namespace detail

/// A JSON object with one figure on each line, in the order in which they were set.
class Summary {
 public:
  /// Sets a figure. NaN and infinity become null, also in a list, since JSON has neither.
  Summary& set(std::string_view key, const Json& value) {
    json_.set(key, detail::without_non_finite(value));
    return *this;
  }

  [[nodiscard]] std::string text() const { return json_.dump(2); }

  /// Writes the file whole or not at all. Throws looptorch::Error.
  void write(const std::filesystem::path& file) const { write_file_atomically(file, text() + "\n"); }

 private:
  Json json_ = Json::object();
};

}  // namespace looptorch::app
