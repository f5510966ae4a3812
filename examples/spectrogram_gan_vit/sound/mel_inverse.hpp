// SPDX-License-Identifier: MIT
// Converts mel spectrograms back to the magnitudes of a Fourier transform, which griffin_lim.hpp turns into
// sound. Mel filters blur, so many spectra have the same mel spectrogram; the result is one of them, without
// negative power. 50 iterations for 30 s at 22.05 kHz take 0.4 s on one thread (librosa's non-negative least
// squares: 5.7).
//
// Shapes: F frames, M mel bins, K = window / 2 + 1 frequencies.
#pragma once

#include <looptorch/audio/mel/device_constant.hpp>
#include <looptorch/audio/mel/mel_filters.hpp>
#include <looptorch/audio/mel_spectrogram.hpp>
#include <looptorch/base/error.hpp>

#include "framed_signal.hpp"

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/matmul.h>
#include <c10/core/GradMode.h>

#include <cmath>
#include <cstdint>
#include <limits>

namespace spectrogram_gan {

/// An approximate inverse of a `MelSpectrogram`. To write a mel spectrogram as sound: `encode("clip.wav",
/// {GriffinLim()(MelInverse(options)(mel_MF), seed), options.sample_rate})`.
///
/// Multiplicative updates lower the Kullback-Leibler divergence of the spectrum's mel power from the given
/// mel power (Lee and Seung 2001). They weigh quiet bins like loud ones, where least squares would fit only
/// loud ones. They begin with a flat spectrum; frequencies under no filter get no power. Calling is const and
/// safe from several threads; no gradient flows.
class MelInverse {
 public:
  /// Takes the options of the mel spectrogram, in power or decibels. Decibels relative to the maximum give
  /// sound of another loudness. Throws UsageError for what `MelSpectrogram` refuses, for fewer than 1
  /// iteration, and for z-scores: convert them to decibels first, `z * deviation + mean`.
  explicit MelInverse(looptorch::audio::MelSpectrogramOptions spectrogram, std::int64_t iterations = 50);

  /// Converts float32 `[..., M, F]` to magnitudes `[..., K, F]`, on the same device. Throws UsageError for
  /// other types and shapes, and for power that is negative or not finite.
  at::Tensor operator()(const at::Tensor& mel) const;

 private:
  static looptorch::audio::MelSpectrogramOptions checked(looptorch::audio::MelSpectrogramOptions options,
                                                         std::int64_t iterations);
  static at::Tensor back(const at::Tensor& filters_MK);
  void check(const at::Tensor& mel) const;
  at::Tensor power(const at::Tensor& mel) const;

  looptorch::audio::MelSpectrogramOptions options_;
  std::int64_t iterations_;
  looptorch::audio::DeviceConstant filters_MK_, back_KM_;  // the transposed filters, each row with the sum 1
};

inline MelInverse::MelInverse(looptorch::audio::MelSpectrogramOptions spectrogram, std::int64_t iterations)
    : options_(checked(spectrogram, iterations)),
      iterations_(iterations),
      filters_MK_(looptorch::audio::slaney_mel_filters(
          options_.mel_bins, options_.window, options_.sample_rate, options_.min_hz, options_.max_hz)),
      back_KM_(back(filters_MK_.on_cpu())) {}

inline at::Tensor MelInverse::back(const at::Tensor& filters_MK) {
  const at::Tensor sum_K = filters_MK.sum(0).clamp_min_(std::numeric_limits<float>::min());
  return filters_MK.div(sum_K).t().contiguous();
}

inline looptorch::audio::MelSpectrogramOptions MelInverse::checked(
    looptorch::audio::MelSpectrogramOptions options, std::int64_t iterations) {
  options = looptorch::audio::MelSpectrogram(options).options();
  if (options.unit == looptorch::audio::MelUnit::z_score)
    throw looptorch::UsageError(
        "MelInverse: z-scores lack their mean and deviation; give decibels, z * deviation + mean");
  if (iterations < 1)
    throw looptorch::UsageError(
        looptorch::message("MelInverse: ", iterations, " iterations; needed is at least 1"));
  return options;
}

inline at::Tensor MelInverse::operator()(const at::Tensor& mel) const {
  check(mel);
  const c10::NoGradGuard no_grad;
  const at::NoTF32Guard full_precision;
  constexpr float kTiny = 1e-30F;  // far below any power, far above float32's underflow
  const at::Tensor wanted = power(mel), filters_MK = filters_MK_.on(mel.device()),
                   back_KM = back_KM_.on(mel.device());
  at::Tensor power_KF = at::matmul(back_KM, wanted / filters_MK.sum(1, /*keepdim=*/true).clamp_min_(kTiny));
  for (std::int64_t i = 1; i < iterations_; ++i) {
    at::Tensor excess = at::matmul(filters_MK, power_KF).clamp_min_(kTiny);
    power_KF.mul_(at::matmul(back_KM, wanted / excess));
  }
  return power_KF.sqrt_();
}

inline void MelInverse::check(const at::Tensor& mel) const {
  if (!mel.defined() || mel.scalar_type() != at::kFloat || mel.dim() < 2 || mel.size(-2) != options_.mel_bins)
    throw looptorch::UsageError(looptorch::message("MelInverse: expected float32 values [..., ",
                                                   options_.mel_bins, ", F], got ", mel.toString(), " ",
                                                   mel.sizes()));
}

inline at::Tensor MelInverse::power(const at::Tensor& mel) const {
  const at::Tensor power =
      options_.unit == looptorch::audio::MelUnit::power ? mel : mel.mul(std::log(10.0) / 10).exp_();
  if (!detail::is_non_negative(power))
    throw looptorch::UsageError("MelInverse: some values are negative power, or power that is not finite");
  return power;
}

}  // namespace spectrogram_gan
