// SPDX-License-Identifier: MIT
// An empty folder of the test's own, removed at the end of the scope.
#pragma once

#include <stdlib.h>

#include <cstddef>
#include <filesystem>
#include <iterator>
#include <stdexcept>
#include <string>

namespace looptorch::testing {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "looptorch-XXXXXX").string();
    if (!::mkdtemp(name.data())) throw std::runtime_error("cannot create " + name);
    path_ = name;
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() { remove(path_); }

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] std::filesystem::path operator/(const std::string& name) const { return path_ / name; }
  [[nodiscard]] std::ptrdiff_t entries() const {
    return std::distance(std::filesystem::directory_iterator(path_), {});
  }

 private:
  /// Removes a folder without std::filesystem::remove_all: libtorch.so exports its own, which calls a symbol
  /// that does not exist (2.11).
  static void remove(const std::filesystem::path& path) {
    if (std::filesystem::is_directory(std::filesystem::symlink_status(path))) {
      for (const auto& entry : std::filesystem::directory_iterator(path)) remove(entry.path());
    }
    std::filesystem::remove(path);
  }

  std::filesystem::path path_;
};

}  // namespace looptorch::testing
