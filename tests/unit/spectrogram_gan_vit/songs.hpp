// SPDX-License-Identifier: MIT
// Songs with labels, in a folder of their own.
#pragma once

#include "support/precompiled.hpp"

#include <looptorch/audio/encode.hpp>

#include "support/temporary_folder.hpp"
#include "unit/audio/signals.hpp"

#include <spectrogram_gan_vit/clips/annotations.hpp>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

namespace spectrogram_gan_test {

inline constexpr std::int64_t kRate = 22050;

inline at::Tensor music(double seconds, double rate = kRate) {
  return signals::as_samples(signals::music(std::llround(seconds * rate), rate));
}

/// Songs of so many seconds, 1.wav, 2.wav, ...
struct Songs {
  explicit Songs(const std::vector<double>& seconds) {
    for (const auto length : seconds) add(music(length));
  }

  void add(const at::Tensor& samples_T, std::int64_t rate = kRate) {
    const auto id = std::ssize(songs) + 1;
    const auto file = folder / (std::to_string(id) + ".wav");
    looptorch::audio::encode(file, {samples_T, rate});
    songs.push_back({.id = id,
                     .audio = file,
                     .valence = 0.125 * static_cast<double>(id),
                     .arousal = -0.25 * static_cast<double>(id)});
  }

  looptorch::testing::TemporaryFolder folder;
  std::vector<spectrogram_gan::Song> songs;
};

}  // namespace spectrogram_gan_test
