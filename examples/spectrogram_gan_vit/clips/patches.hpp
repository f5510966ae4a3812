// SPDX-License-Identifier: MIT
// Averages spectrograms over patches of neighbouring cells. Clips are compared by these averages, on which
// noise has little effect, to find copies and to measure diversity.
//
// Shapes: N clips, M mel bins, F frames, K patches.
#pragma once

#include <ATen/ATen.h>

#include <algorithm>
#include <cstdint>

namespace spectrogram_gan {

/// Converts `[N, 1, M, F]` to `[N, K]`: 16 x 64 patches, or as many as there are cells.
[[nodiscard]] inline at::Tensor patches_of(const at::Tensor& spectrograms_N1MF) {
  const auto rows = std::min<std::int64_t>(16, spectrograms_N1MF.size(2)),
             columns = std::min<std::int64_t>(64, spectrograms_N1MF.size(3));
  return at::adaptive_avg_pool2d(spectrograms_N1MF.detach().to(at::kCPU, at::kFloat), {rows, columns})
      .flatten(1);
}

}  // namespace spectrogram_gan
