// SPDX-License-Identifier: MIT
// Finds the tables and the audio or spectrograms in a dataset's folder: a folder made by emotion_corpus, this
// example's program for synthetic songs, or one with the unpacked archives of DEAM, a published dataset.
#pragma once

#include <looptorch/base/error.hpp>

#include "annotations.hpp"
#include "saved_spectrogram.hpp"
#include "skipped_items.hpp"

#include <array>
#include <filesystem>
#include <system_error>
#include <vector>

namespace spectrogram_gan {

namespace detail {

/// True if the folder itself has a `.npy`.
[[nodiscard]] inline bool holds_arrays(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::directory_iterator entry(folder, error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error))
    if (is_saved_spectrogram(entry->path())) return true;
  return false;
}

}  // namespace detail

/// Returns the songs of a dataset's folder. The audio is in the first existing folder of `audio`,
/// `MEMD_audio`, `DEAM_audio/MEMD_audio` and `spectrograms`, or else in the folder itself if that has a
/// `.npy`. The tables are in `song_level` of DEAM's annotations, if these were unpacked, else in the folder
/// itself. Notes wrong lines in `skipped` if it is given. Throws AnnotationError if there is no audio, and
/// what load_annotations throws.
[[nodiscard]] inline std::vector<Song> load_songs(const std::filesystem::path& folder,
                                                  SkippedItems* skipped = nullptr) {
  static constexpr std::array kAudio{"audio", "MEMD_audio", "DEAM_audio/MEMD_audio", "spectrograms"};
  static constexpr std::array kTables{
      "annotations/annotations averaged per song/song_level",
      "DEAM_Annotations/annotations/annotations averaged per song/song_level"};
  const auto first_of = [&](const auto& names) {
    std::error_code error;
    for (const auto* name : names)
      if (std::filesystem::is_directory(folder / name, error)) return folder / name;
    return std::filesystem::path();
  };
  const auto tables = first_of(kTables);
  auto audio = first_of(kAudio);
  if (audio.empty() && detail::holds_arrays(folder)) audio = folder;
  if (audio.empty())
    throw AnnotationError(
        folder.string() +
        ": holds no folder audio, MEMD_audio, DEAM_audio/MEMD_audio or spectrograms, and no array SONG_ID.npy");
  return load_annotations(tables.empty() ? folder : tables, audio, skipped);
}

}  // namespace spectrogram_gan
