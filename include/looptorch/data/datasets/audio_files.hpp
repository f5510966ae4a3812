// SPDX-License-Identifier: MIT
// Finds audio files in folders by their extensions.
#pragma once

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace looptorch {

/// The extensions of audio files, in the order in which they are searched for.
inline constexpr std::array<std::string_view, 5> kAudioExtensions{".wav", ".flac", ".mp3", ".ogg", ".opus"};

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

/// Adds the files in a folder and below. Enters a link to a folder unless it leads below `root` or to one of
/// `entered`, whose files are found without it.
inline void add_files_below(const std::filesystem::path& folder, const std::filesystem::path& root,
                            std::set<std::filesystem::path>& entered,
                            std::vector<std::filesystem::path>& files) {
  std::vector<std::filesystem::directory_entry> entries(std::filesystem::directory_iterator(folder), {});
  std::sort(entries.begin(), entries.end());
  for (const auto& entry : entries) {
    std::error_code none;
    if (!entry.is_directory(none)) {
      files.push_back(entry.path());
      continue;
    }
    const auto real = std::filesystem::canonical(entry.path());
    const bool leads_below = entry.is_symlink() && std::ranges::mismatch(root, real).in1 == root.end();
    if (!leads_below && entered.insert(real).second) add_files_below(entry.path(), root, entered, files);
  }
}

}  // namespace detail

/// Returns the files in a folder and below, by name. Enters links to folders; a folder that several names
/// lead to counts once. Throws std::filesystem::filesystem_error for a folder that cannot be read.
[[nodiscard]] inline std::vector<std::filesystem::path> files_below(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  const auto root = std::filesystem::canonical(folder);
  std::set<std::filesystem::path> entered{root};
  detail::add_files_below(folder, root, entered, files);
  std::sort(files.begin(), files.end());
  return files;
}

/// Returns files as they are, and for a folder those of `files_below` that `is_wanted`. A folder without any
/// is itself returned, so that the caller can report it and continue with the others. Throws
/// std::filesystem::filesystem_error for a folder that cannot be read.
[[nodiscard]] inline std::vector<std::filesystem::path> audio_files(
    const std::vector<std::string>& names,
    const std::function<bool(const std::filesystem::path&)>& is_wanted = is_audio_file) {
  std::vector<std::filesystem::path> files;
  for (const std::filesystem::path name : names) {
    std::vector<std::filesystem::path> within;
    if (std::filesystem::is_directory(name)) within = files_below(name);
    std::erase_if(within, [&](const auto& file) { return !is_wanted(file); });
    if (within.empty()) within.push_back(name);
    files.insert(files.end(), within.begin(), within.end());
  }
  return files;
}

}  // namespace looptorch
