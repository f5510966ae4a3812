// SPDX-License-Identifier: MIT
// Computes the kernel distance between the features of two sets of clips (KID: Binkowski, Sutherland, Arbel
// and Gretton, 2018), in double precision. Unlike the Frechet distance it does not assume normally
// distributed features. Few clips make the Frechet distance too large; the expected kernel distance is the
// same for any number of clips.
//
// Shapes: N and K clips, D features.
#pragma once

#include <looptorch/base/error.hpp>

#include <torch/torch.h>

#include <cstdint>

namespace spectrogram_gan {

namespace detail {

/// Returns (x . y / D + 1)^3 for each pair.
inline at::Tensor cubic_kernel(const at::Tensor& x_ND, const at::Tensor& y_KD) {
  return (at::matmul(x_ND, y_KD.t()) / static_cast<double>(x_ND.size(1)) + 1).pow(3);
}

/// Returns the mean over all pairs of different clips.
inline at::Tensor mean_of_pairs(const at::Tensor& kernel_NN) {
  const auto count = static_cast<double>(kernel_NN.size(0));
  return (kernel_NN.sum() - kernel_NN.trace()) / (count * (count - 1));
}

inline at::Tensor checked_features(const at::Tensor& features_ND) {
  if (features_ND.dim() != 2 || features_ND.size(0) < 2 || features_ND.size(1) < 1)
    throw looptorch::UsageError(looptorch::message(
        "kernel_distance: expected features [N, D] of at least 2 clips, got ", features_ND.sizes()));
  const auto values = features_ND.detach().to(at::kCPU, at::kDouble);
  if (!values.isfinite().all().item<bool>())
    throw looptorch::UsageError("kernel_distance: some features are NaN or infinite");
  return values;
}

}  // namespace detail

/// Returns the unbiased estimate of the squared maximum mean discrepancy of features `[N, D]` and `[K, D]`
/// under the kernel (x . y / D + 1)^3. For two sets from one distribution it is about 0, and may be negative.
/// Throws UsageError for other shapes, fewer than 2 clips, and values that are not finite.
[[nodiscard]] inline double kernel_distance(const at::Tensor& a_ND, const at::Tensor& b_KD) {
  const auto a = detail::checked_features(a_ND), b = detail::checked_features(b_KD);
  if (a.size(1) != b.size(1))
    throw looptorch::UsageError(
        looptorch::message("kernel_distance: ", a.size(1), " features and ", b.size(1)));
  const auto within =
      detail::mean_of_pairs(detail::cubic_kernel(a, a)) + detail::mean_of_pairs(detail::cubic_kernel(b, b));
  return (within - 2 * detail::cubic_kernel(a, b).mean()).item<double>();
}

}  // namespace spectrogram_gan
