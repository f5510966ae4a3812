// SPDX-License-Identifier: MIT
// Loads the songs of a corpus folder in three splits, and makes of each split a dataset with cached
// spectrograms. Collects skipped songs and short clips, which a program lists when it ends.
#pragma once

#include <looptorch/app/training_options.hpp>
#include <looptorch/data/cache/cached_dataset.hpp>
#include <looptorch/preflight/hard_batches.hpp>
#include <looptorch/preflight/sample_batches.hpp>

#include "data.hpp"
#include "dataset_folder.hpp"
#include "saved_spectrogram.hpp"
#include "skipped_items.hpp"
#include "splits.hpp"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace spectrogram_gan {

using Clips = looptorch::CachedDataset<SpectrogramDataset>;

/// Faults of the data that a program prints as it ends: short clips, skipped songs.
struct Notes {
  std::shared_ptr<ShortClips> short_clips = std::make_shared<ShortClips>(SpectrogramOptions{}.seconds);
  SkippedItems skipped;
};

/// Returns a sentence on how saved spectrograms are read; empty if no song is such a file.
[[nodiscard]] inline std::string describe_saved(const std::vector<Song>& songs) {
  const auto count = std::ranges::count_if(songs, is_saved_spectrogram, &Song::audio);
  if (count == 0) return {};
  return looptorch::message(count, count == 1 ? " song is an array" : " songs are arrays",
                            " of NumPy, taken as log-mel spectrograms of 20 to 8000 Hz, a frame each ",
                            SpectrogramOptions::kHop, " samples at ", SpectrogramOptions::kRate, " Hz");
}

/// Returns the songs of a folder in three splits. Lists wrong lines in `notes`, or throws the first, as
/// `options` say. Prints how saved spectrograms are read.
[[nodiscard]] inline SongSplits load_splits(const std::filesystem::path& folder,
                                            const looptorch::app::TrainingOptions& options, Notes& notes) {
  const auto few = [&options](std::vector<Song> songs) {
    options.keep_few(songs);
    return songs;
  };
  auto songs = load_songs(folder, options.skips_bad_audio() ? &notes.skipped : nullptr);
  if (const auto saved = describe_saved(songs); !saved.empty()) std::cout << saved << std::endl;
  const auto splits = split_songs(std::move(songs));
  return {few(splits.train), HeldOutSongs(few(splits.validation.songs())),
          HeldOutSongs(few(splits.test.songs()))};
}

/// Returns songs as clips of `n_mels` bins, with spectrograms cached in the folder `cache`.
template <class Songs>
[[nodiscard]] Clips cached_clips(const Songs& songs, std::int64_t n_mels, const std::filesystem::path& cache,
                                 const Notes& notes) {
  SpectrogramDataset dataset(songs, {.mel_bins = n_mels}, notes.short_clips);
  const looptorch::CacheOptions options{.folder = cache, .settings = dataset.settings()};
  return Clips(std::move(dataset), options);
}

/// Returns a batch for a preflight. Any batch will do, since all clips have the same shape.
template <class Dataset>
[[nodiscard]] looptorch::SampleBatches<Dataset> any_batch(const Dataset& clips, std::int64_t batch_size) {
  return {clips, looptorch::hard_batches(clips.size(), batch_size)};
}

}  // namespace spectrogram_gan
