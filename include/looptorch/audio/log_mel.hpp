// SPDX-License-Identifier: MIT
// Computes Whisper's log-mel spectrogram, the input of its encoder, on the device of the samples. Equals
// openai-whisper's within 1e-5, and within 5e-5 for a pure tone, whose Fourier transform CPUs round
// differently. A 30 s clip takes 2.4 ms on one thread (openai-whisper: 6.1).
//
// Shapes: B clips, T samples, M mel bins, F frames of 400 samples every 160, K = 201 frequencies.
#pragma once

#include <looptorch/audio/mel/device_constant.hpp>
#include <looptorch/audio/mel/mel_filters.hpp>
#include <looptorch/audio/mel/mel_frames.hpp>
#include <looptorch/audio/mel/mel_power.hpp>
#include <looptorch/base/error.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/hann_window.h>
#include <ATen/ops/maximum.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cstdint>

namespace looptorch::audio {

/// Options of `LogMel`. The order of the fields is API.
struct LogMelOptions {
  std::int64_t mel_bins = 80;         ///< 80, or 128 for large-v3
  std::int64_t max_samples = 480000;  ///< length to which clips are padded or truncated; 30 s at 16 kHz
};

/// Converts samples at 16 kHz to Whisper's features.
///
/// Centred frames of a periodic Hann window of 400 (reflected at both ends), hop 160, last frame dropped;
/// power; Slaney's mel filters; log10 of at least 1e-10; at most 8 below the clip's maximum; (x + 4) / 4.
/// Each clip of a batch has its own maximum, so that its features do not depend on the other clips.
///
/// Digital silence has no dynamic range: its features are -1.5 everywhere, which is also the value of the
/// padding after a very quiet clip. A louder clip's padding lies 2 below its maximum. Calling is const and
/// safe from several threads; no gradient flows to the samples. On a GPU matmuls never use TF32, and
/// only the first call on a device waits for it.
class LogMel {
 public:
  static constexpr std::int64_t kSampleRate = 16000;

  /// Throws UsageError for less than 1 mel bin or less than one window (400 samples).
  explicit LogMel(LogMelOptions options = {});

  const LogMelOptions& options() const { return options_; }

  /// Returns the mel filters `[mel_bins, K]`, float32, which openai-whisper has in mel_filters.npz. Throws
  /// UsageError for less than 1 bin.
  static at::Tensor filters(std::int64_t mel_bins) {
    (void)checked({.mel_bins = mel_bins});
    return slaney_mel_filters(mel_bins, kWindow, kSampleRate);
  }

  /// Returns F: one frame for every 160 of `max_samples`.
  std::int64_t frames() const { return options_.max_samples / kHop; }

  /// Converts `[T]` to `[M, F]`, and `[B, T]` to `[B, M, F]`, float32. Throws UsageError for other types and
  /// shapes.
  at::Tensor operator()(const at::Tensor& samples) const;

 private:
  static constexpr std::int64_t kWindow = 400;
  static constexpr std::int64_t kHop = 160;

  static void check(const at::Tensor& samples);
  at::Tensor reflected(const at::Tensor& samples_BT) const;
  static at::Tensor compressed(at::Tensor mel_BMF);

  static LogMelOptions checked(LogMelOptions options);

  LogMelOptions options_;
  DeviceConstant window_W_;
  MelPower mel_power_;
};

inline LogMel::LogMel(LogMelOptions options)
    : options_(checked(options)),
      window_W_(at::hann_window(kWindow, at::kFloat)),
      mel_power_(filters(options.mel_bins)) {}

inline LogMelOptions LogMel::checked(LogMelOptions options) {
  if (options.mel_bins < 1 || options.max_samples < kWindow)
    throw UsageError(looptorch::message("LogMel: ", options.mel_bins, " mel bins of ", options.max_samples,
                                        " samples; needed are at least 1 and ", kWindow));
  return options;
}

inline at::Tensor LogMel::operator()(const at::Tensor& samples) const {
  check(samples);
  const c10::NoGradGuard no_grad;
  const at::Tensor samples_BT = samples.dim() == 1 ? samples.unsqueeze(0) : samples;
  const at::Tensor mel_BMF =
      compressed(mel_of_frames(reflected(samples_BT), window_W_, kHop, frames(), mel_power_));
  return samples.dim() == 1 ? mel_BMF.squeeze(0) : mel_BMF;
}

inline void LogMel::check(const at::Tensor& samples) {
  if (!samples.defined() || samples.scalar_type() != at::kFloat || samples.dim() < 1 || samples.dim() > 2)
    throw UsageError(looptorch::message("LogMel: expected float32 samples [T] or [B, T], got ",
                                        samples.toString(), " ", samples.sizes()));
}

/// Returns the clips at their full length with half a window on either side, in one copy: `[B, (F - 1) * hop
/// + window]`.
inline at::Tensor LogMel::reflected(const at::Tensor& samples_BT) const {
  constexpr std::int64_t kHalf = kWindow / 2;
  const std::int64_t length = options_.max_samples, used = std::min(samples_BT.size(1), length);
  const std::int64_t right = (frames() - 1) * kHop + kHalf - length;  // the dropped frame needs no reflection
  const at::Tensor whole = at::empty({samples_BT.size(0), kHalf + length + std::max<std::int64_t>(right, 0)},
                                     samples_BT.options());
  const at::Tensor clip = whole.narrow(1, kHalf, length);
  clip.narrow(1, 0, used).copy_(samples_BT.narrow(1, 0, used));
  clip.narrow(1, used, length - used).zero_();
  whole.narrow(1, 0, kHalf).copy_(clip.narrow(1, 1, kHalf).flip(1));
  if (right > 0)
    whole.narrow(1, kHalf + length, right).copy_(clip.narrow(1, length - 1 - right, right).flip(1));
  return whole;
}

inline at::Tensor LogMel::compressed(at::Tensor mel_BMF) {
  mel_BMF.clamp_min_(1e-10).log10_();
  const at::Tensor floor = mel_BMF.amax({1, 2}, /*keepdim=*/true).sub_(8.0);
  return at::maximum_out(mel_BMF, mel_BMF, floor).add_(4.0).div_(4.0);
}

}  // namespace looptorch::audio
