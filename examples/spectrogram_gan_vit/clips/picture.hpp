// SPDX-License-Identifier: MIT
// Defines Picture, the form in which this example's networks see a clip: a mel spectrogram in decibels,
// normalised to mean 0 and deviation 1.
//
// Shapes: M mel bins, F frames of 512 samples.
#pragma once

#include <looptorch/audio/clip_limits.hpp>
#include <looptorch/audio/mel_spectrogram.hpp>

#include <ATen/ATen.h>

#include <cmath>
#include <cstdint>
#include <utility>

namespace spectrogram_gan {

/// Thrown for a clip without a usable spectrogram. Names the file.
using looptorch::audio::ClipError;

struct SpectrogramOptions {
  std::int64_t mel_bins = 128;  ///< bins from 20 to 8000 Hz
  double seconds = 30;          ///< seconds of a clip: longer files are cut, shorter ones padded

  static constexpr std::int64_t kRate = 22050, kHop = 512;

  [[nodiscard]] std::int64_t samples() const { return std::llround(seconds * static_cast<double>(kRate)); }
  [[nodiscard]] std::int64_t frames() const { return 1 + samples() / kHop; }  ///< F; 1292 for 30 s
};

/// Returns the library's options for these spectrograms, in decibels without a reference; `MelInverse` takes
/// the same options to convert spectrograms to sound.
[[nodiscard]] inline looptorch::audio::MelSpectrogramOptions mel_options(const SpectrogramOptions& options) {
  return {.sample_rate = SpectrogramOptions::kRate,
          .window = 2048,
          .hop = SpectrogramOptions::kHop,
          .mel_bins = options.mel_bins,
          .min_hz = 20,
          .max_hz = 8000,
          .unit = looptorch::audio::MelUnit::decibels,
          .relative_to_max = false};
}

/// The scale that z-scoring removes from a spectrogram: `z * deviation + mean` are its decibels.
struct DecibelScale {
  double mean = -20, deviation = 20;

  [[nodiscard]] at::Tensor to_decibels(const at::Tensor& z_scores) const {
    return z_scores * deviation + mean;
  }
};

/// One clip's picture.
struct Picture {
  at::Tensor spectrogram_1MF;
  DecibelScale scale;
  double seconds = 0;  ///< seconds of sound, before padding; at most the options'
};

/// Returns a spectrogram with mean 0 and deviation 1, and the scale that this removes. A deviation below 1e-6
/// counts as 1e-6.
[[nodiscard]] inline std::pair<at::Tensor, DecibelScale> z_scored(const at::Tensor& decibels_MF) {
  constexpr double kNoDeviation = 1e-6;
  const auto [deviation, mean] = at::std_mean(decibels_MF, at::IntArrayRef{0, 1}, /*unbiased=*/false);
  return {(decibels_MF - mean) / deviation.clamp_min(kNoDeviation),
          {mean.item<double>(), deviation.item<double>()}};
}

}  // namespace spectrogram_gan
