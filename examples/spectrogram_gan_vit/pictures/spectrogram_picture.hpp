// SPDX-License-Identifier: MIT
// Draws a spectrogram. Time goes to the right and pitch upwards; loud is bright and quiet is dark.
//
// Shapes: M mel bins, F frames.
#pragma once

#include <looptorch/base/error.hpp>

#include <ATen/ATen.h>

#include <cstdint>

namespace spectrogram_gan {

/// Returns z-scores `[M, F]` as pixels, uint8 `[M x zoom, F, 3]`, from black (-2.5) to pale yellow (2.5).
/// Values that are not finite are green.
[[nodiscard]] inline at::Tensor picture_of(const at::Tensor& spectrogram_MF, std::int64_t zoom = 2) {
  if (spectrogram_MF.dim() != 2 || zoom < 1)
    throw looptorch::UsageError(looptorch::message("picture_of: expected a spectrogram [M, F], got ",
                                                   spectrogram_MF.sizes(), " and a zoom of ", zoom));
  static const auto colours =
      at::tensor({0, 0, 4, 81, 18, 124, 183, 55, 121, 252, 137, 97, 252, 253, 191}, at::kFloat).view({5, 3});
  constexpr double kReach = 2.5;
  const auto values = spectrogram_MF.detach().to(at::kCPU, at::kFloat).flip(0);
  const auto place = ((values / kReach + 1) * 2).nan_to_num(0, 0, 0).clamp(0, 4);
  const auto below = place.floor().clamp_max(3);
  const auto lower = below.to(at::kLong);
  auto pixels = at::lerp(colours.index({lower}), colours.index({lower + 1}), (place - below).unsqueeze(2));
  pixels.index_put_({values.isfinite().logical_not()}, at::tensor({0, 255, 0}, at::kFloat));
  return pixels.round().to(at::kByte).repeat_interleave(zoom, 0);
}

}  // namespace spectrogram_gan
