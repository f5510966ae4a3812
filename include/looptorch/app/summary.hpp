// SPDX-License-Identifier: MIT
// Writes a run's figures and duration to a JSON file. A program removes the old summary before it overwrites
// results and writes the new one last, so a folder with a summary is complete.
#pragma once

#include <looptorch/base/files/atomic_file.hpp>
#include <looptorch/base/json/json.hpp>

#include <cmath>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>

namespace looptorch::app {

/// A JSON object with one figure on each line, in the order in which they were set.
class Summary {
 public:
  /// A number that is NaN or infinite becomes null, since JSON has neither.
  Summary& set(std::string_view key, Json value) {
    const bool is_none = value.is_number() && !std::isfinite(value.as_number());
    json_.set(key, is_none ? Json() : std::move(value));
    return *this;
  }

  [[nodiscard]] std::string text() const { return json_.dump(2); }

  /// Writes the file whole or not at all. Throws looptorch::Error.
  void write(const std::filesystem::path& file) const { write_file_atomically(file, text() + "\n"); }

 private:
  Json json_ = Json::object();
};

}  // namespace looptorch::app
