// SPDX-License-Identifier: MIT
// Converts audio files to this example's training pictures (picture.hpp), and reads spectrograms that Python
// saved. Takes about 15 ms for a FLAC file of 30 s.
//
// Shapes: M mel bins, F frames of 512 samples, T samples.
#pragma once

#include <looptorch/audio/clip_reader.hpp>
#include <looptorch/audio/mel_spectrogram.hpp>
#include <looptorch/base/error.hpp>

#include "picture.hpp"
#include "saved_spectrogram.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <filesystem>

namespace spectrogram_gan {

/// Reads clips. Safe to call from several threads.
class ClipReader {
 public:
  /// Throws looptorch::UsageError for options without mel bins, and for seconds that are not a number or
  /// shorter than a frame.
  explicit ClipReader(SpectrogramOptions options)
      : options_(checked(options)),
        reader_({.sample_rate = SpectrogramOptions::kRate,
                 .limits = {.max_seconds = options.seconds},
                 .on_long = looptorch::audio::OnLongClip::cut}),
        mel_(mel_options(options)) {}

  /// Reads the first `seconds` of a file, and pads a shorter one with silence. Throws ClipError for silence,
  /// and what looptorch::audio::decode throws; for a `.npy` file what read_saved_spectrogram throws.
  [[nodiscard]] Picture operator()(const std::filesystem::path& file) const {
    return is_saved_spectrogram(file) ? read_saved_spectrogram(file, options_) : (*this)(reader_(file));
  }

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
