// SPDX-License-Identifier: MIT
// Splits songs into training, validation and test. A table may name a recorded song's split. Otherwise the
// split depends only on the song's id and a seed, so adding or removing other songs does not change it.
// Generated songs are for training only.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/random.hpp>
#include <looptorch/data/manifest/manifest_split.hpp>

#include "annotations.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace spectrogram_gan {

/// Songs for validation or test. Never holds a generated song, so its users need not check.
class HeldOutSongs {
 public:
  HeldOutSongs() = default;

  /// Throws looptorch::UsageError, which names the song, for a generated song.
  explicit HeldOutSongs(std::vector<Song> songs) : songs_(std::move(songs)) {
    for (const auto& song : songs_) {
      if (song.origin == Origin::generated)
        throw looptorch::UsageError(looptorch::message(song.audio.string(), ": song ", song.id,
                                                       " was generated; it cannot be held out"));
    }
  }

  [[nodiscard]] const std::vector<Song>& songs() const { return songs_; }

 private:
  std::vector<Song> songs_;
};

struct SongSplits {
  std::vector<Song> train;  ///< recorded and generated songs
  HeldOutSongs validation, test;
};

/// Assigns each song to one split: a generated song to training, a recorded one by the table, or else by a
/// draw from id and seed. Throws AnnotationError if a split has no recorded songs, and looptorch::UsageError
/// for shares that are negative or together more than 1.
[[nodiscard]] inline SongSplits split_songs(std::vector<Song> songs, std::uint64_t seed = 42,
                                            looptorch::SplitShares shares = {}) {
  const double both = shares.train + shares.validation;
  if (!(shares.train >= 0 && shares.validation >= 0 && both <= 1 + 1e-9))
    throw looptorch::UsageError(looptorch::message("split_songs: the shares ", shares.train, " and ",
                                                   shares.validation,
                                                   " must not be negative, nor more than 1 together"));
  const auto drawn = [&](const Song& song) {
    const double draw =
        looptorch::uniform_from(looptorch::derive_seed(seed, static_cast<std::uint64_t>(song.id)));
    return draw < shares.train ? Split::train : draw < both ? Split::validation : Split::test;
  };
  std::array<std::vector<Song>, 3> parts;
  std::array<std::size_t, 3> recorded{};
  for (auto& song : songs) {
    const bool is_generated = song.origin == Origin::generated;
    const auto split =
        static_cast<std::size_t>(is_generated ? Split::train : song.split.value_or(drawn(song)));
    recorded[split] += is_generated ? 0 : 1;
    parts[split].push_back(std::move(song));
  }
  for (const std::size_t split : {0, 1, 2}) {
    if (recorded[split] == 0)
      throw AnnotationError(looptorch::message("of ", songs.size(), " songs none is for ",
                                               std::array{"training", "validation", "testing"}[split]));
  }
  return {std::move(parts[0]), HeldOutSongs(std::move(parts[1])), HeldOutSongs(std::move(parts[2]))};
}

}  // namespace spectrogram_gan
