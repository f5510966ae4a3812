// SPDX-License-Identifier: MIT
// Lists the files that a program's user names by one path: a single file, or all files in a folder that have
// a given extension.
#pragma once

#include <algorithm>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

namespace looptorch {

/// True for the name of an AppleDouble file, `._name`: macOS's archives keep a file's attributes in it.
[[nodiscard]] inline bool is_apple_double(const std::filesystem::path& file) {
  return file.filename().string().starts_with("._");
}

/// Returns the files directly in a folder that end in `extension` (".json"), by name, without AppleDouble
/// files. Returns a `place` that is a file itself, whatever its name. Throws Error, a type that is made from
/// a text, if there is no such file or if the folder cannot be read.
template <class Error>
[[nodiscard]] std::vector<std::filesystem::path> files_at(const std::filesystem::path& place,
                                                          const std::string& extension) {
  std::error_code error;
  const auto type = std::filesystem::status(place, error).type();
  if (type != std::filesystem::file_type::directory && type != std::filesystem::file_type::not_found)
    return {place};
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(place, error))
    if (entry.path().extension() == extension && !is_apple_double(entry.path()))
      files.push_back(entry.path());
  if (error) throw Error(place.string() + ": " + error.message());
  if (files.empty()) throw Error(place.string() + ": holds no " + extension);
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace looptorch
