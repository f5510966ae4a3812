// SPDX-License-Identifier: MIT
// Converts a padded clip to mel power: overlapping frames, window, Fourier transform, mel filters. Shared by
// all mel spectrograms.
//
// Shapes: B clips, T samples, F frames, W samples of a window, K frequencies, M mel bins.
#pragma once

#include <looptorch/audio/mel/device_constant.hpp>
#include <looptorch/audio/mel/frame_blocks.hpp>
#include <looptorch/audio/mel/mel_power.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/fft_rfft.h>

#include <cstdint>

namespace looptorch::audio {

/// Returns the mel power `[B, M, F]` of `count` frames, every `hop` samples from the first on. Each row of
/// `padded_BT` must be contiguous.
///
/// Frames overlap in a view; only their product with the window is stored, on the CPU a block at a time.
inline at::Tensor mel_of_frames(const at::Tensor& padded_BT, const DeviceConstant& constant_W,
                                std::int64_t hop, std::int64_t count, const MelPower& mel_power) {
  const at::Tensor window_W = constant_W.on(padded_BT.device());
  const std::int64_t clips = padded_BT.size(0), window = window_W.size(0);
  const at::Tensor frames_BFW = padded_BT.as_strided({clips, count, window}, {padded_BT.stride(0), hop, 1});
  if (!padded_BT.is_cpu()) return mel_power.by_operators(at::fft_rfft(frames_BFW.mul(window_W)));

  const at::Tensor mel_BMF = at::empty({clips, mel_power.bins(), count}, at::kFloat);
  for (std::int64_t clip = 0; clip < clips; ++clip) {
    each_frame_block(padded_BT.device(), count, window, [&](std::int64_t first, std::int64_t some) {
      const at::Tensor spectrum_FK = at::fft_rfft(frames_BFW[clip].narrow(0, first, some).mul(window_W));
      mel_power.in_one_pass(spectrum_FK.contiguous(), mel_BMF[clip].narrow(1, first, some));
    });
  }
  return mel_BMF;
}

}  // namespace looptorch::audio
