// SPDX-License-Identifier: MIT
// Finds a file whose name on disk is in another Unicode normal form than its name in a list. macOS and some
// archives write "é" as two characters, Linux and Windows as one. Linux's file systems treat the two forms as
// different names. Used for the audio files of manifests. Reads each folder once.
#pragma once

#include <looptorch/base/text/utf8.hpp>
#include <looptorch/base/unicode/canonical_form.hpp>

#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace looptorch {

/// Looks up paths by canonical equivalence. Caches the names in each folder.
class EquivalentFiles {
 public:
  /// Returns the regular files whose paths are canonically equivalent to `path`, including a file of exactly
  /// this name. An ASCII part of the path matches only itself. A path with a NUL names no file.
  [[nodiscard]] std::vector<std::filesystem::path> find(const std::filesystem::path& path) {
    if (path.native().find('\0') != std::string::npos) return {};
    std::vector<std::filesystem::path> found{path.root_path()};
    for (const auto& part : path.relative_path()) {
      std::vector<std::filesystem::path> longer;
      for (const auto& folder : found)
        for (const auto& name : names_like(folder, part.native())) longer.push_back(folder / name);
      found = std::move(longer);
    }
    std::error_code ignored;
    std::erase_if(found, [&](const auto& file) { return !std::filesystem::is_regular_file(file, ignored); });
    return found;
  }

 private:
  using Names = std::multimap<std::string, std::string>;  ///< each file's name by its canonical form

  [[nodiscard]] std::vector<std::string> names_like(const std::filesystem::path& folder,
                                                    const std::string& name) {
    const auto is_ascii = [](char c) { return static_cast<unsigned char>(c) < 0x80; };
    if (std::all_of(name.begin(), name.end(), is_ascii) || find_invalid_utf8(name) != name.npos)
      return {name};
    const auto [begin, end] = names_in(folder).equal_range(canonical_form(name));
    std::vector<std::string> names;
    for (auto at = begin; at != end; ++at) names.push_back(at->second);
    std::sort(names.begin(), names.end());
    return names;
  }

  /// Returns the names in a folder that are UTF-8; none for one that cannot be read.
  [[nodiscard]] const Names& names_in(const std::filesystem::path& folder) {
    const auto [at, is_new] = folders_.try_emplace(folder);
    std::error_code error;
    if (!is_new) return at->second;
    std::filesystem::directory_iterator entry(folder.empty() ? "." : folder, error);
    for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
      auto name = entry->path().filename().native();
      if (find_invalid_utf8(name) == name.npos) at->second.emplace(canonical_form(name), std::move(name));
    }
    return at->second;
  }

  std::map<std::filesystem::path, Names> folders_;
};

}  // namespace looptorch
