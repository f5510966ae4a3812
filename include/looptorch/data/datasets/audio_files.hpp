// SPDX-License-Identifier: MIT
// Finds audio files in folders by their extensions.
#pragma once

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
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

/// Returns files as they are, and for a folder the files within it and below that `is_wanted`, by name. A
/// folder without any is itself returned, so that the caller can report it and continue with the others.
/// Throws std::filesystem::filesystem_error for a folder that cannot be read.
[[nodiscard]] inline std::vector<std::filesystem::path> audio_files(
    const std::vector<std::string>& names,
    const std::function<bool(const std::filesystem::path&)>& is_wanted = is_audio_file) {
  std::vector<std::filesystem::path> files;
  for (const std::filesystem::path name : names) {
    std::vector<std::filesystem::path> within;
    if (std::filesystem::is_directory(name))
      for (const auto& entry : std::filesystem::recursive_directory_iterator(name))
        if (is_wanted(entry.path())) within.push_back(entry.path());
    if (within.empty()) within.push_back(name);
    std::sort(within.begin(), within.end());
    files.insert(files.end(), within.begin(), within.end());
  }
  return files;
}

}  // namespace looptorch
