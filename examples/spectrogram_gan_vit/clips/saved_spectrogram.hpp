// SPDX-License-Identifier: MIT
// Reads mel spectrograms that Python saved by np.save, as training pictures (picture.hpp). Each is normalised
// to mean 0 and deviation 1, so files in decibels, natural logarithms and z-scores give the same picture. If
// a spectrogram is power, take its logarithm before it is saved. Frames must be like this example's: 22.05
// kHz, hop 512, 20 to 8000 Hz.
//
// Shapes: M mel bins, F frames.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/data/datasets/audio_files.hpp>
#include <looptorch/data/npy.hpp>

#include "picture.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>

namespace spectrogram_gan {

/// True for a name that ends in `.npy`.
[[nodiscard]] inline bool is_saved_spectrogram(const std::filesystem::path& file) {
  return looptorch::small_extension(file) == ".npy";
}

/// Reads the first frames of an array `[M, F]` or `[1, M, F]`, and pads a shorter one with its least value.
/// The scale is that of the array's decibels, or the default if it was z-scored. Throws ClipError for an
/// array of another shape or number of mel bins, and for one that is constant, not finite or beyond fp32.
/// Throws what looptorch::load_npy throws.
[[nodiscard]] inline Picture read_saved_spectrogram(const std::filesystem::path& file,
                                                    const SpectrogramOptions& options) {
  const auto refuse = [&](const auto&... what) {
    throw ClipError(looptorch::message(file.string(), ": ", what...));
  };
  const auto array = looptorch::load_npy(file);
  const auto shape = array.sizes();
  const bool is_one = array.dim() == 2 || (array.dim() == 3 && array.size(0) == 1);
  if (!is_one || array.numel() == 0)
    refuse("holds an array of shape ", shape, "; a spectrogram is [", options.mel_bins, ", frames] or [1, ",
           options.mel_bins, ", frames], one a file");
  const auto bins = array.size(-2), frames = array.size(-1);
  if (bins != options.mel_bins && frames == options.mel_bins)
    refuse("holds an array of shape ", shape, ", frames first; save its transpose: np.save(file, array.T)");
  if (bins != options.mel_bins)
    refuse("holds an array of shape ", shape, ", which has ", bins, " mel bins; ", options.mel_bins,
           " are asked for, by --n-mels or by the model");
  const auto count = std::min(frames, options.frames());
  const auto values_MF = array.view({bins, frames}).narrow(1, 0, count).to(at::kFloat);
  const auto [least, most] = values_MF.aminmax();
  if (!std::isfinite(least.item<float>()) || !std::isfinite(most.item<float>()))
    refuse("holds numbers that are not finite");
  if (least.item<float>() == most.item<float>()) refuse("holds the same number everywhere");
  const auto [spectrogram_MF, scale] =
      z_scored(at::constant_pad_nd(values_MF, {0, options.frames() - count}, least.item()));
  if (!spectrogram_MF.isfinite().all().item<bool>())
    refuse("holds numbers from ", least.item<float>(), " to ", most.item<float>(),
           ", whose differences are beyond fp32: no logarithms of a spectrogram");
  const bool was_z_scored = std::abs(scale.mean) < 0.05 && std::abs(scale.deviation - 1) < 0.05;
  const auto seconds =
      static_cast<double>(count * SpectrogramOptions::kHop) / static_cast<double>(SpectrogramOptions::kRate);
  return {.spectrogram_1MF = spectrogram_MF.unsqueeze(0),
          .scale = was_z_scored ? DecibelScale{} : scale,
          .seconds = count == options.frames() ? options.seconds : seconds};
}

}  // namespace spectrogram_gan
