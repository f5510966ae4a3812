// SPDX-License-Identifier: MIT
// Resolves the name of an audio file in a manifest as NeMo does. The name may be relative to the manifest's
// folder, absolute, or begin with "~/" for the user's home folder.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/files/equivalent_file.hpp>
#include <looptorch/data/manifest/utterance.hpp>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

namespace looptorch::detail {

/// True if the path is a file that can be opened. False also for a name that no file system accepts.
[[nodiscard]] inline bool is_file(const std::filesystem::path& path) {
  std::error_code ignored;
  return path.native().find('\0') == std::string::npos && std::filesystem::is_regular_file(path, ignored);
}

/// True for "C:\clips\a.wav" and "\\server\clips\a.wav", absolute paths of Windows.
[[nodiscard]] inline bool is_windows_path(std::string_view name) {
  const auto is_letter = [](char c) { return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z'); };
  return name.starts_with("\\\\") ||
         (name.size() > 2 && is_letter(name[0]) && name[1] == ':' && (name[2] == '\\' || name[2] == '/'));
}

/// Returns the name of a file in Common Voice's column `path`: one in the folder `clips`, unless it is
/// absolute or names that folder itself.
[[nodiscard]] inline std::string name_in_clips(const std::string& name) {
  for (const std::string_view whole : {"/", "~/", "clips/", "./clips/"})
    if (name.starts_with(whole)) return name;
  return name.empty() || is_windows_path(name) ? name : "clips/" + name;
}

/// Returns the path without "." and "..", unless that would name another file: after a link to a folder, ".."
/// is the folder above the link's target.
[[nodiscard]] inline std::filesystem::path normal_path(const std::filesystem::path& path) {
  auto normal = path.lexically_normal();
  std::error_code none;
  const bool goes_up = path.native().find("/..") != std::string::npos;
  const bool differs =
      goes_up && !std::filesystem::equivalent(path, normal, none) && std::filesystem::exists(path, none);
  return differs ? path : normal;
}

/// Returns `normal_path(folder / name)`, faster if the name is normal already. "~/" is the home folder.
[[nodiscard]] inline std::filesystem::path resolved_path(const std::filesystem::path& folder,
                                                         std::string name) {
  const auto is_normal = [](const std::string& path) {
    return !path.starts_with('.') && path.find("/.") == path.npos && path.find("//") == path.npos;
  };
  if (const char* home = std::getenv("HOME"); home != nullptr && name.starts_with("~/"))
    name = home + name.substr(1);
  if (folder.empty() || !is_normal(folder.native()) || !is_normal(name) || name.starts_with('/'))
    return normal_path(folder / name);
  const std::string& before = folder.native();
  return before + (before.ends_with('/') ? "" : "/") + std::move(name);
}

/// Returns what may be wrong with the name of a missing file, to follow it in an error; empty if unknown.
[[nodiscard]] inline std::string hint_for_missing(std::string_view name) {
  if (is_windows_path(name)) return "; it is a path of Windows: write the path that the file has here";
  if (name.find('\\') != name.npos) return "; part folders by \"/\", not by \"\\\"";
  if (name.starts_with('~') && !name.starts_with("~/"))
    return "; of names with \"~\" only \"~/\" is known, the folder that HOME names";
  return {};
}

/// Finds the audio files of a manifest. Caches the folder listings that it reads.
class AudioFinder {
 public:
  /// Returns the file at `path`, or the one whose name is canonically equivalent, as macOS spells names.
  /// Throws ManifestError, with `name` as the manifest has it, if there is none or more than one.
  [[nodiscard]] std::filesystem::path operator()(const std::filesystem::path& path, std::string_view name) {
    if (is_file(path)) return path;
    const auto found = files_.find(path);
    if (found.size() == 1) return found.front();
    if (std::error_code none; std::filesystem::is_directory(path, none))
      throw ManifestError(message("audio file ", path.string(), " is a folder"));
    const auto& shown = is_windows_path(name) ? std::string(name) : path.string();
    if (found.empty())
      throw ManifestError(message("audio file ", shown, " does not exist", hint_for_missing(name)));
    throw ManifestError(message("audio file ", shown, " does not exist in this normal form of Unicode, and ",
                                found.size(), " files exist in others; rename all but one"));
  }

 private:
  EquivalentFiles files_;
};

}  // namespace looptorch::detail
