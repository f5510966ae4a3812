// SPDX-License-Identifier: MIT
// Measures whether generated spectrograms are copies of training clips, and whether they differ from one
// another. Compares the spectrograms' averages over patches (patches.hpp).
//
// Shapes: N clips, K patches.
#pragma once

#include <looptorch/base/error.hpp>

#include "../clips/patches.hpp"

#include <torch/torch.h>

#include <cmath>
#include <cstdint>

namespace spectrogram_gan {

/// Returns the distances of all pairs, computed from differences. at::cdist computes them from a matmul by
/// default, which is inexact for similar pictures.
[[nodiscard]] inline at::Tensor distances(const at::Tensor& patches_NK, const at::Tensor& others) {
  constexpr std::int64_t kWithoutMatmul = 2;
  return at::cdist(patches_NK, others, /*p=*/2, kWithoutMatmul);
}

/// Returns the distance of each of `patches_NK` to the nearest of `others`, `[N]`: the root of the mean
/// square over patches.
[[nodiscard]] inline at::Tensor nearest_distances(const at::Tensor& patches_NK, const at::Tensor& others) {
  const auto scale = std::sqrt(static_cast<double>(patches_NK.size(1)));
  return at::amin(distances(patches_NK, others), 1) / scale;
}

/// Returns the mean distance between two different clips. Throws UsageError for fewer than 2.
[[nodiscard]] inline double mean_distance(const at::Tensor& patches_NK) {
  const auto count = static_cast<double>(patches_NK.size(0));
  if (count < 2) throw looptorch::UsageError("mean_distance: one clip alone has no distance");
  const auto scale = std::sqrt(static_cast<double>(patches_NK.size(1)));
  return distances(patches_NK, patches_NK).sum().item<double>() / (count * (count - 1) * scale);
}

struct Diversity {
  double generated_to_train = 0;  ///< median distance from a generated clip to the nearest training clip
  double held_out_to_train = 0;   ///< median distance from a held-out clip to the nearest training clip
  /// share of generated clips that are nearer to a training clip than half the distance of any held-out clip
  double copies = 0;
  double spread = 0;  ///< mean distance between generated clips, divided by that between held-out clips
};

/// Returns the measures. All arguments are patches.
[[nodiscard]] inline Diversity diversity_of(const at::Tensor& generated, const at::Tensor& held_out,
                                            const at::Tensor& train) {
  const auto of_generated = nearest_distances(generated, train),
             of_held_out = nearest_distances(held_out, train);
  const auto limit = of_held_out.min() / 2;
  return {.generated_to_train = of_generated.median().item<double>(),
          .held_out_to_train = of_held_out.median().item<double>(),
          .copies = (of_generated < limit).to(at::kDouble).mean().item<double>(),
          .spread = mean_distance(generated) / mean_distance(held_out)};
}

}  // namespace spectrogram_gan
