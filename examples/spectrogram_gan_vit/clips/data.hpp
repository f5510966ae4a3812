// SPDX-License-Identifier: MIT
// The dataset of songs: a sample is a song's spectrogram with its emotion. Spectrograms stay in host memory
// or, with a cache, on disk; only batches move to the device.
//
// Shapes: B batch, M mel bins, F frames.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/data/batch/batch_empty.hpp>
#include <looptorch/data/cache/cached_identity.hpp>
#include <looptorch/data/datasets/dataset.hpp>
#include <looptorch/data/loader/loader_error.hpp>
#include <looptorch/data/manifest/listed_lines.hpp>

#include "annotations.hpp"
#include "spectrogram.hpp"
#include "splits.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace spectrogram_gan {

struct Clip {
  std::int64_t song_id = 0;
  at::Tensor spectrogram_1MF;
  double valence = 0, arousal = 0;
  DecibelScale scale;
  double seconds = 0;  ///< seconds of sound, before padding
};

struct Batch {
  at::Tensor spectrograms_B1MF;
  at::Tensor conditions_B2;  ///< valence and arousal, in [-1, 1]
};

/// Returns spectrograms and labels as a batch in host memory. In a loader it lies in the loader's reused
/// memory. The clips' spectrograms must have one shape.
[[nodiscard]] inline Batch batch_of(std::span<const Clip> clips) {
  const auto rows = static_cast<std::int64_t>(clips.size());
  const auto& first = clips.front().spectrogram_1MF;
  Batch batch{.spectrograms_B1MF = looptorch::batch_empty({rows, 1, first.size(1), first.size(2)}),
              .conditions_B2 = looptorch::batch_empty({rows, 2})};
  auto* conditions = batch.conditions_B2.mutable_data_ptr<float>();
  for (std::int64_t row = 0; row < rows; ++row) {
    const auto& clip = clips[static_cast<std::size_t>(row)];
    batch.spectrograms_B1MF[row].copy_(clip.spectrogram_1MF);
    conditions[2 * row] = static_cast<float>(clip.valence);
    conditions[2 * row + 1] = static_cast<float>(clip.arousal);
  }
  return batch;
}

/// Padded clips, each listed once. Safe to use from several threads.
class ShortClips {
 public:
  explicit ShortClips(double wanted_seconds) : wanted_seconds_(wanted_seconds) {}

  /// Lists the clip if it is short.
  void note(std::int64_t song_id, double seconds) {
    if (seconds >= wanted_seconds_) return;
    const std::lock_guard lock(mutex_);
    seconds_.emplace(song_id, seconds);
  }

  [[nodiscard]] std::size_t count() const {
    const std::lock_guard lock(mutex_);
    return seconds_.size();
  }

  /// Returns the number of clips and the first `at_most` of them by song id; empty if there are none.
  [[nodiscard]] std::string describe(std::size_t at_most = 5) const {
    const std::lock_guard lock(mutex_);
    if (seconds_.empty()) return {};
    auto text = looptorch::message(seconds_.size(), seconds_.size() == 1 ? " clip is" : " clips are",
                                   " shorter than ", wanted_seconds_, " s, padded with silence: song");
    std::size_t listed = 0;
    for (const auto& [song_id, seconds] : seconds_) {
      if (listed == at_most) return text + " ...";
      text += looptorch::message(listed++ == 0 ? " " : ", ", song_id, " (", std::floor(100 * seconds) / 100,
                                 " s)");
    }
    return text;
  }

 private:
  double wanted_seconds_;
  mutable std::mutex mutex_;
  std::map<std::int64_t, double> seconds_;
};

/// Songs as spectrograms, computed on request. Draws nothing, so that a looptorch::CachedDataset may wrap it:
///
///   SpectrogramDataset songs(splits.train, {.mel_bins = 96});
///   looptorch::CachedDataset cached(songs, {.folder = "cache", .settings = songs.settings()});
class SpectrogramDataset {
 public:
  /// Notes short clips in `short_clips`, which several datasets may share; if null, in a list of its own.
  explicit SpectrogramDataset(std::vector<Song> songs, SpectrogramOptions options = {},
                              std::shared_ptr<ShortClips> short_clips = nullptr)
      : songs_(std::move(songs)),
        names_(songs_, &Song::audio),
        reader_(options),
        short_clips_(short_clips ? std::move(short_clips) : std::make_shared<ShortClips>(options.seconds)) {}
  explicit SpectrogramDataset(const HeldOutSongs& held_out, SpectrogramOptions options = {},
                              std::shared_ptr<ShortClips> short_clips = nullptr)
      : SpectrogramDataset(held_out.songs(), options, std::move(short_clips)) {}

  [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(songs_.size()); }

  /// Throws what ClipReader throws.
  [[nodiscard]] Clip get(std::int64_t index) const {
    const auto& song = at(index);
    auto [spectrogram_1MF, scale, seconds] = reader_(song.audio);
    return {.song_id = song.id,
            .spectrogram_1MF = std::move(spectrogram_1MF),
            .valence = song.valence,
            .arousal = song.arousal,
            .scale = scale,
            .seconds = seconds};
  }

  [[nodiscard]] Batch collate(std::span<Clip> clips) const {
    for (const auto& clip : clips) short_clips_->note(clip.song_id, clip.seconds);
    return batch_of(clips);
  }

  /// Returns a song's file, for errors.
  [[nodiscard]] std::filesystem::path path(std::int64_t index) const { return at(index).audio; }

  /// Returns the clip's identity for a cache: the contents of its file, and the labels.
  [[nodiscard]] std::string identity(std::int64_t index) const {
    const auto& song = at(index);
    return looptorch::message(looptorch::remembered_content_identity(song.audio), '|', song.id, '|',
                              std::bit_cast<std::uint64_t>(song.valence), '|',
                              std::bit_cast<std::uint64_t>(song.arousal));
  }

  /// Returns the song's line, by which a resumed run recognises its data.
  [[nodiscard]] std::string fingerprint(std::int64_t index) const {
    const auto& song = at(index);
    return looptorch::message(names_(song.audio), '|', song.id, '|',
                              std::bit_cast<std::uint64_t>(song.valence), '|',
                              std::bit_cast<std::uint64_t>(song.arousal));
  }

  /// Returns, for a cache, all else that a clip depends on.
  [[nodiscard]] std::string settings() const {
    const auto& options = reader_.options();
    return looptorch::message("spectrogram_gan 1, ", options.mel_bins, " mel bins, ", options.samples(),
                              " samples");
  }

  [[nodiscard]] const std::vector<Song>& songs() const { return songs_; }
  [[nodiscard]] const SpectrogramOptions& options() const { return reader_.options(); }

  /// Returns the padded clips among those read so far.
  [[nodiscard]] const std::shared_ptr<ShortClips>& short_clips() const { return short_clips_; }

 private:
  [[nodiscard]] const Song& at(std::int64_t index) const { return songs_[static_cast<std::size_t>(index)]; }

  std::vector<Song> songs_;
  looptorch::NamesBelow names_;
  ClipReader reader_;
  std::shared_ptr<ShortClips> short_clips_;
};

/// Returns the scale for a generator's sound: the mean over at most `at_most` clips, spread over the dataset.
/// Skips unreadable clips with OnError::skip. Throws what the dataset throws; if no clip can be read, what
/// the last one threw.
template <class Dataset>
[[nodiscard]] DecibelScale mean_scale(const Dataset& clips, std::int64_t at_most = 64,
                                      looptorch::OnError on_error = looptorch::OnError::fail) {
  DecibelScale sum{0, 0};
  double read = 0;
  const auto count = std::min(clips.size(), at_most);
  for (std::int64_t i = 0; i < count; ++i) {
    try {
      const auto scale = clips.get(i * clips.size() / count).scale;
      sum.mean += scale.mean;
      sum.deviation += scale.deviation;
      ++read;
    } catch (const looptorch::Error&) {
      if (on_error == looptorch::OnError::fail || (read == 0 && i + 1 == count)) throw;
    }
  }
  return {sum.mean / read, sum.deviation / read};
}

}  // namespace spectrogram_gan
