// SPDX-License-Identifier: MIT
// Converts audio files to this example's training pictures: mel spectrograms in decibels, with mean 0 and
// deviation 1 each. About 15 ms for a clip of 30 s as FLAC.
//
// Shapes: M mel bins, F frames of 512 samples, T samples.
#pragma once

#include <looptorch/audio/clip_reader.hpp>
#include <looptorch/audio/mel_spectrogram.hpp>
#include <looptorch/base/error.hpp>

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <utility>

namespace spectrogram_gan {

/// Thrown for a clip from which no spectrogram can be made. Names the file.
using looptorch::audio::ClipError;

struct SpectrogramOptions {
  std::int64_t mel_bins = 128;  ///< from 20 to 8000 Hz
  double seconds = 30;          ///< of a clip; longer files are cut, shorter ones are padded

  static constexpr std::int64_t kRate = 22050, kHop = 512;

  [[nodiscard]] std::int64_t samples() const { return std::llround(seconds * static_cast<double>(kRate)); }
  [[nodiscard]] std::int64_t frames() const { return 1 + samples() / kHop; }  ///< F; 1292 for 30 s
};

/// Returns the library's options of these spectrograms, in decibels without a reference, with which
/// looptorch::audio::MelInverse converts one to sound.
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

/// The scale that a z-scored spectrogram has lost: `z * deviation + mean` are its decibels.
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
  double seconds = 0;  ///< of sound, before padding; at most the options'
};

/// Returns a spectrogram with mean 0 and deviation 1, and the scale that it loses by that. A deviation below
/// 1e-6 counts as 1e-6.
[[nodiscard]] inline std::pair<at::Tensor, DecibelScale> z_scored(const at::Tensor& decibels_MF) {
  constexpr double kNoDeviation = 1e-6;
  const auto [deviation, mean] = at::std_mean(decibels_MF, at::IntArrayRef{0, 1}, /*unbiased=*/false);
  return {(decibels_MF - mean) / deviation.clamp_min(kNoDeviation),
          {mean.item<double>(), deviation.item<double>()}};
}

/// Reads clips. Safe to call from several threads.
class ClipReader {
 public:
  /// Takes the options. Throws looptorch::UsageError for no mel bins, and for seconds that are not a number
  /// or shorter than a frame.
  explicit ClipReader(SpectrogramOptions options)
      : options_(checked(options)),
        reader_({.sample_rate = SpectrogramOptions::kRate,
                 .limits = {.max_seconds = options.seconds},
                 .on_long = looptorch::audio::OnLongClip::cut}),
        mel_(mel_options(options)) {}

  /// Reads the first `seconds` of a file, padded with silence if it is shorter. Throws ClipError for silence,
  /// and what looptorch::audio::decode throws.
  [[nodiscard]] Picture operator()(const std::filesystem::path& file) const { return (*this)(reader_(file)); }

  /// Converts samples at 22.05 kHz, float32 `[T]`.
  [[nodiscard]] Picture operator()(const at::Tensor& samples_T) const {
    const auto count = std::min(samples_T.size(0), options_.samples());
    const auto whole_T = at::constant_pad_nd(samples_T.narrow(0, 0, count), {0, options_.samples() - count});
    const auto [spectrogram_MF, scale] = z_scored(mel_(whole_T));
    return {.spectrogram_1MF = spectrogram_MF.unsqueeze(0),
            .scale = scale,
            .seconds = static_cast<double>(count) / static_cast<double>(SpectrogramOptions::kRate)};
  }

  [[nodiscard]] const SpectrogramOptions& options() const { return options_; }

 private:
  static SpectrogramOptions checked(SpectrogramOptions options) {
    if (options.mel_bins < 1 || !(options.seconds > 0 && options.seconds < 3600))
      throw looptorch::UsageError(looptorch::message("spectrograms of ", options.mel_bins, " mel bins and ",
                                                     options.seconds, " s cannot be made"));
    return options;
  }

  SpectrogramOptions options_;
  looptorch::audio::ClipReader reader_;
  looptorch::audio::MelSpectrogram mel_;
};

}  // namespace spectrogram_gan
