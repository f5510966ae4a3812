// SPDX-License-Identifier: MIT
// Draws where a network attended: the spectrogram, bright where attention was high and dark where it was low.
//
// Shapes: M mel bins, F frames, H x W patches.
#pragma once

#include <looptorch/base/error.hpp>

#include "spectrogram_picture.hpp"

#include <ATen/ATen.h>

#include <cstdint>

namespace spectrogram_gan {

/// Returns a z-scored spectrogram `[M, F]` as pixels `[M x zoom, F, 3]`, each as bright as its patch's
/// weight. `weights_HW` are at least 0, with the lowest pitches in the first row; those above 98 % of the
/// patches count as full. The darkest pixels keep a sixth of their light. Throws UsageError for other shapes.
[[nodiscard]] inline at::Tensor attention_picture(const at::Tensor& spectrogram_MF,
                                                  const at::Tensor& weights_HW, std::int64_t zoom = 2) {
  if (weights_HW.dim() != 2 || weights_HW.numel() == 0)
    throw looptorch::UsageError(
        looptorch::message("attention_picture: expected weights [H, W], got ", weights_HW.sizes()));
  constexpr double kFull = 0.98, kLeast = 1.0 / 6;
  const auto pixels = picture_of(spectrogram_MF, zoom);
  const auto weights = weights_HW.detach().to(at::kCPU, at::kFloat).flip(0);
  const auto full = at::quantile(weights.flatten(), kFull).clamp_min(1e-12);
  const auto bright = kLeast + (1 - kLeast) * (weights / full).clamp(0, 1);
  const auto light = at::upsample_bilinear2d(bright.view({1, 1, bright.size(0), bright.size(1)}),
                                             {pixels.size(0), pixels.size(1)}, /*align_corners=*/false)[0][0];
  return (pixels.to(at::kFloat) * light.unsqueeze(2)).round().to(at::kByte);
}

}  // namespace spectrogram_gan
