// SPDX-License-Identifier: MIT
// The audio files that a user names, one by one or by their folder.
#pragma once

#include <looptorch/audio/clip_limits.hpp>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace spectrogram_gan {

/// How the names of audio files end.
inline constexpr std::array<std::string_view, 5> kAudioExtensions{".mp3", ".wav", ".flac", ".ogg", ".opus"};

/// True for a name with one of these endings, in capitals too.
[[nodiscard]] inline bool is_audio_file(const std::filesystem::path& file) {
  auto extension = file.extension().string();
  for (char& letter : extension) letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  return std::find(kAudioExtensions.begin(), kAudioExtensions.end(), extension) != kAudioExtensions.end();
}

/// Returns files as they are, and for a folder the audio files within it and below, by name. Throws ClipError
/// for a folder without any.
[[nodiscard]] inline std::vector<std::filesystem::path> audio_files(const std::vector<std::string>& names) {
  std::vector<std::filesystem::path> files;
  for (const std::filesystem::path name : names) {
    if (!std::filesystem::is_directory(name)) {
      files.push_back(name);
      continue;
    }
    const auto first = static_cast<std::ptrdiff_t>(files.size());
    for (const auto& entry : std::filesystem::recursive_directory_iterator(name))
      if (is_audio_file(entry.path())) files.push_back(entry.path());
    if (first == static_cast<std::ptrdiff_t>(files.size()))
      throw looptorch::audio::ClipError(name.string() + ": holds no audio");
    std::sort(files.begin() + first, files.end());
  }
  return files;
}

}  // namespace spectrogram_gan
