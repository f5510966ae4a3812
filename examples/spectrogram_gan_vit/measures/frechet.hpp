// SPDX-License-Identifier: MIT
// Computes the Frechet distance between the features of two sets of clips (Heusel et al., 2017), in double
// precision: how far generated clips are from real ones. Both sets are assumed to be normally distributed.
//
// Shapes: N clips, D features.
#pragma once

#include <looptorch/base/error.hpp>

#include <torch/torch.h>

#include <algorithm>

namespace spectrogram_gan {

/// The mean `[D]` and covariance `[D, D]` (over N - 1), float64 on the CPU.
struct FeatureStatistics {
  at::Tensor mean_D, covariance_DD;
};

/// Returns the statistics of features `[N, D]`. Throws UsageError for another shape, fewer than 2 clips, and
/// values that are not finite.
[[nodiscard]] inline FeatureStatistics statistics_of(const at::Tensor& features_ND) {
  if (features_ND.dim() != 2 || features_ND.size(0) < 2 || features_ND.size(1) < 1)
    throw looptorch::UsageError(looptorch::message(
        "statistics_of: expected features [N, D] of at least 2 clips, got ", features_ND.sizes()));
  const auto values = features_ND.detach().to(at::kCPU, at::kDouble);
  if (!values.isfinite().all().item<bool>())
    throw looptorch::UsageError("statistics_of: some features are NaN or infinite");
  const auto mean_D = values.mean(0), centred = values - mean_D;
  return {mean_D, at::matmul(centred.t(), centred) / static_cast<double>(values.size(0) - 1)};
}

namespace detail {

/// Returns the root of a positive semi-definite matrix; eigenvalues that rounding made negative count as 0.
inline at::Tensor matrix_root(const at::Tensor& matrix) {
  const auto [values, vectors] = at::linalg_eigh(matrix);
  return at::matmul(vectors * values.clamp_min(0).sqrt(), vectors.t());
}

}  // namespace detail

/// Returns |m1 - m2|^2 + tr(C1 + C2 - 2 (C1 C2)^1/2), at least 0. Takes the trace of the root of C1^1/2 C2
/// C1^1/2 instead, which is the same: that matrix is symmetric, so no complex numbers arise from singular
/// covariances. Throws UsageError for different numbers of features.
[[nodiscard]] inline double frechet_distance(const FeatureStatistics& a, const FeatureStatistics& b) {
  if (a.mean_D.sizes() != b.mean_D.sizes())
    throw looptorch::UsageError(
        looptorch::message("frechet_distance: ", a.mean_D.size(0), " features and ", b.mean_D.size(0)));
  const auto root = detail::matrix_root(a.covariance_DD);
  const auto product = at::matmul(at::matmul(root, b.covariance_DD), root);
  const auto shared = at::linalg_eigvalsh((product + product.t()) / 2).clamp_min(0).sqrt().sum();
  const auto distance =
      (a.mean_D - b.mean_D).square().sum() + a.covariance_DD.trace() + b.covariance_DD.trace() - 2 * shared;
  return std::max(distance.item<double>(), 0.0);
}

}  // namespace spectrogram_gan
