// SPDX-License-Identifier: MIT
// Converts sound to overlapping windowed spectra and back: the centred short-time Fourier transform and its
// least-squares inverse. Works on blocks of frames, so that a block's spectra are still in the CPU's cache
// when the caller reads them. Holds three copies of the sound.
//
// Shapes: B clips, T samples, P padded samples, F frames, W samples of a window, K frequencies.
#pragma once

#include <looptorch/audio/mel/frame_blocks.hpp>

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/fft_irfft.h>
#include <ATen/ops/fft_rfft.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>

namespace spectrogram_gan::detail {

/// True if all values are finite and at least 0. Waits for the device.
inline bool is_non_negative(const at::Tensor& values) {
  const at::Tensor finite = values.lt(std::numeric_limits<double>::infinity());
  return values.ge(0).logical_and_(finite).all().item<bool>();
}

/// Returns the number of centred frames in `samples` samples; the first is centred on sample 0.
constexpr std::int64_t centred_frames(std::int64_t samples, std::int64_t window, std::int64_t hop) {
  return 1 + (samples - window % 2) / hop;
}

/// The sound and its spectra. The sound is silent beyond its ends. `hop` is at most half a window.
class FramedSignal {
 public:
  FramedSignal(at::Tensor window_W, std::int64_t hop, std::int64_t clips, std::int64_t samples)
      : window_W_(std::move(window_W)),
        hop_(hop),
        samples_(samples),
        frames_(centred_frames(samples, window(), hop)),
        sum_BP_(at::zeros({clips, (frames_ - 1 + shifts()) * hop}, window_W_.options())),
        sound_BP_(at::zeros_like(sum_BP_)),
        gain_P_(at::zeros({sum_BP_.size(1)}, window_W_.options())) {
    const at::Tensor square_FW = window_W_.square().expand({frames_, window()});
    const at::Tensor weight_P = at::zeros_like(gain_P_);
    overlap(weight_P.unsqueeze(0), 0, square_FW.unsqueeze(0));
    inner(gain_P_).copy_(inner(weight_P).reciprocal());
  }

  std::int64_t frames() const { return frames_; }

  /// Sets the sound, `[B, T]`.
  void set(const at::Tensor& samples_BT) { inner(sound_BP_).copy_(samples_BT); }

  /// Returns the current sound, `[B, T]`.
  at::Tensor samples() const { return inner(sound_BP_).contiguous(); }

  /// Returns the spectra of `count` frames from `first` on: complex `[B, count, K]`.
  at::Tensor spectrum(std::int64_t first, std::int64_t count) const {
    const at::Tensor frames_BFW = sound_BP_.as_strided({sound_BP_.size(0), count, window()},
                                                       {sound_BP_.stride(0), hop_, 1}, first * hop_);
    return at::fft_rfft(frames_BFW.mul(window_W_));
  }

  /// Adds frames, from `first` on, to the new sound. Add each frame once.
  void add(std::int64_t first, const at::Tensor& spectrum_BFK) {
    overlap(sum_BP_, first, at::fft_irfft(spectrum_BFK, window()).mul_(window_W_));
  }

  /// Replaces the sound by the new one, whose spectra are the nearest to the added frames. Call it after all
  /// frames have been added.
  void finish() {
    at::mul_out(sound_BP_, sum_BP_, gain_P_);
    sum_BP_.zero_();
  }

 private:
  std::int64_t window() const { return window_W_.size(0); }

  /// Returns the number of hops that a window spans.
  std::int64_t shifts() const { return (window() + hop_ - 1) / hop_; }

  at::Tensor inner(const at::Tensor& padded) const { return padded.narrow(-1, window() / 2, samples_); }

  /// Adds overlapping frames. Cut into pieces of a hop, frames can be added without overlap: piece j of frame
  /// f belongs to hop f + j.
  void overlap(const at::Tensor& sum_BP, std::int64_t first, const at::Tensor& frames_BFW) const {
    const std::int64_t count = frames_BFW.size(1);
    const at::Tensor hops = sum_BP.view({sum_BP.size(0), -1, hop_});
    for (std::int64_t j = 0; j < shifts(); ++j) {
      const std::int64_t width = std::min(hop_, window() - j * hop_);
      hops.narrow(1, first + j, count).narrow(2, 0, width).add_(frames_BFW.narrow(2, j * hop_, width));
    }
  }

  at::Tensor window_W_;
  std::int64_t hop_, samples_, frames_;
  at::Tensor sum_BP_, sound_BP_;
  at::Tensor gain_P_;  // makes overlapping windows add up to 1; 0 beyond the ends
};

}  // namespace spectrogram_gan::detail
