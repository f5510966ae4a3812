// SPDX-License-Identifier: MIT
// Finds audio files in folders by their extensions.
#pragma once

#include <looptorch/base/files/files_at.hpp>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace looptorch {

/// The extensions of audio files that can be read, in the order in which they are searched for.
inline constexpr std::array<std::string_view, 13> kAudioExtensions{
    ".wav", ".flac", ".mp3", ".ogg", ".opus", ".oga", ".mp2", ".aiff", ".aif", ".au", ".caf", ".w64", ".sph"};

/// Returns ".wav, .flac, ... or .sph", for a message.
[[nodiscard]] inline std::string names_of_audio_extensions() {
  std::string names(kAudioExtensions.front());
  for (std::size_t i = 1; i < kAudioExtensions.size(); ++i)
    names.append(i + 1 < kAudioExtensions.size() ? ", " : " or ").append(kAudioExtensions[i]);
  return names;
}

/// Returns a file's extension in small letters: ".wav" of "a/B.WAV".
[[nodiscard]] inline std::string small_extension(const std::filesystem::path& file) {
  std::string extension = file.extension().string();
  for (char& letter : extension) letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  return extension;
}

/// True for a name with one of kAudioExtensions, in capitals too.
[[nodiscard]] inline bool is_audio_file(const std::filesystem::path& file) {
  return std::find(kAudioExtensions.begin(), kAudioExtensions.end(), small_extension(file)) !=
         kAudioExtensions.end();
}

namespace detail {

/// True for the name of a sound or video file that must be converted before it can be read.
[[nodiscard]] inline bool is_unread_sound(const std::filesystem::path& file) {
  constexpr std::array<std::string_view, 7> kUnread{".m4a", ".mp4", ".aac", ".wma", ".amr", ".webm", ".mkv"};
  return std::ranges::find(kUnread, small_extension(file)) != kUnread.end();
}

/// Removes files that are neither wanted nor unread sound. Also removes unread sound that was converted:
/// beside it lies a wanted file of the same name.
inline void keep_wanted(std::vector<std::filesystem::path>& files,
                        const std::function<bool(const std::filesystem::path&)>& is_wanted) {
  const auto without_extension = [](std::filesystem::path file) { return file.replace_extension(); };
  std::set<std::filesystem::path> unread;
  for (const auto& file : files)
    if (is_unread_sound(file)) unread.insert(without_extension(file));
  for (const auto& file : files)
    if (!unread.empty() && is_wanted(file)) unread.erase(without_extension(file));
  std::erase_if(files, [&](const auto& file) {
    return !is_wanted(file) && !(is_unread_sound(file) && unread.contains(without_extension(file)));
  });
}

/// Adds the files in a folder and below, except AppleDouble files. Follows a link to a folder, unless the
/// folder lies below `root` or is one of `entered`: its files are found without the link.
inline void add_files_below(const std::filesystem::path& folder, const std::filesystem::path& root,
                            std::set<std::filesystem::path>& entered,
                            std::vector<std::filesystem::path>& files) {
  std::vector<std::filesystem::directory_entry> entries(std::filesystem::directory_iterator(folder), {});
  std::sort(entries.begin(), entries.end());
  for (const auto& entry : entries) {
    std::error_code none;
    if (!entry.is_directory(none)) {
      if (!is_apple_double(entry.path())) files.push_back(entry.path());
      continue;
    }
    const auto real = std::filesystem::canonical(entry.path());
    const bool leads_below = entry.is_symlink() && std::ranges::mismatch(root, real).in1 == root.end();
    if (!leads_below && entered.insert(real).second) add_files_below(entry.path(), root, entered, files);
  }
}

}  // namespace detail

/// Returns the files in a folder and below, by name. Follows links to folders, and visits each folder once.
/// Throws std::filesystem::filesystem_error for a folder that cannot be read.
[[nodiscard]] inline std::vector<std::filesystem::path> files_below(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  const auto root = std::filesystem::canonical(folder);
  std::set<std::filesystem::path> entered{root};
  detail::add_files_below(folder, root, entered, files);
  std::sort(files.begin(), files.end());
  return files;
}

/// Returns files as they are, and for a folder those of its `files_below` that `is_wanted` accepts. Adds the
/// folder's sound that cannot be read, such as `.m4a`, so that the caller can report it, unless a wanted file
/// of the same name lies beside it. Returns a folder without any of these itself, for the same reason. Throws
/// std::filesystem::filesystem_error for a folder that cannot be read.
[[nodiscard]] inline std::vector<std::filesystem::path> audio_files(
    const std::vector<std::string>& names,
    const std::function<bool(const std::filesystem::path&)>& is_wanted = is_audio_file) {
  std::vector<std::filesystem::path> files;
  for (const std::filesystem::path name : names) {
    std::vector<std::filesystem::path> within;
    if (std::filesystem::is_directory(name)) within = files_below(name);
    detail::keep_wanted(within, is_wanted);
    if (within.empty()) within.push_back(name);
    files.insert(files.end(), within.begin(), within.end());
  }
  return files;
}

}  // namespace looptorch
