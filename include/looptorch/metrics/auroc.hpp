// SPDX-License-Identifier: MIT
// Measures how well scores sort samples: the area under the ROC curve for two classes, or for each of several
// classes against all others. The area is exact. Scores stay on their device until the area is read: 4 bytes
// a score (8 if it is an integer or in fp64) and 8 a label. Adding never waits for the device.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/metrics/class_scores.hpp>

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/searchsorted.h>

#include <cmath>
#include <cstdint>
#include <tuple>
#include <vector>

namespace looptorch {

/// Collects scores and labels. Scores need not be probabilities: their order alone counts. Equal scores of
/// two classes count half, and so do int64 scores beyond 2^53 that are equal in fp64. An area is NaN where
/// one of its two sides has no sample, or a score is NaN.
class Auroc {
 public:
  /// Adds scores, [N] of two classes, the higher for label 1, or [N, C], and labels, [N] of integers. Throws
  /// UsageError for other shapes, types or devices, or another number of classes than before.
  void add(const at::Tensor& scores, const at::Tensor& labels) {
    detail::require_labels("Auroc", scores, labels);
    if (scores.dim() > 2 || scores.is_complex())
      throw UsageError(message("Auroc: scores of shape ", scores.sizes(), " and type ", scores.scalar_type(),
                               "; they must be real, [N] or [N, C]"));
    if (!scores_.empty() &&
        (scores.dim() != scores_[0].dim() || scores.sizes().slice(1) != scores_[0].sizes().slice(1)))
      throw UsageError(
          message("Auroc: scores of shape ", scores.sizes(), " after those of shape ", scores_[0].sizes()));
    const bool is_wide = scores.scalar_type() == at::kDouble || !scores.is_floating_point();
    scores_.push_back(
        scores.detach().to(is_wide ? at::kDouble : at::kFloat, /*non_blocking=*/false, /*copy=*/true));
    labels_.push_back(labels.to(at::kLong, /*non_blocking=*/false, /*copy=*/true));
  }

  /// Returns the area of two classes, or the mean over those classes that have one; NaN if none has. Waits
  /// for the device; throws as `areas` does.
  [[nodiscard]] double area() const {
    double sum = 0;
    std::int64_t defined = 0;
    for (const double each : areas())
      if (!std::isnan(each)) sum += each, ++defined;
    return sum / static_cast<double>(defined);
  }

  /// Returns the area of each class against the rest; for scores [N], the one area of two classes. Empty if
  /// there are no samples. Waits for the device. Throws UsageError if labels were outside of the classes.
  [[nodiscard]] std::vector<double> areas() const {
    std::vector<double> result;
    if (scores_.empty()) return result;
    at::NoGradGuard no_grad;
    const auto scores = at::cat(scores_), labels_N = at::cat(labels_);
    const std::int64_t classes = scores.dim() == 1 ? 2 : scores.size(1);
    const auto is_outside_N = labels_N.lt(0).logical_or(labels_N.ge(classes));
    detail::require_none_outside("Auroc", is_outside_N.sum().item<std::int64_t>(), classes);
    if (scores.dim() == 1) return {area_of(scores, labels_N.eq(1))};
    for (std::int64_t c = 0; c < classes; ++c) result.push_back(area_of(scores.select(1, c), labels_N.eq(c)));
    return result;
  }

  void reset() { scores_.clear(), labels_.clear(); }

 private:
  /// Returns the share of pairs of a positive and another sample in which the positive has the higher score.
  [[nodiscard]] static double area_of(const at::Tensor& scores_N, const at::Tensor& is_positive_N) {
    const auto positive = scores_N.masked_select(is_positive_N);
    const auto other = std::get<0>(scores_N.masked_select(is_positive_N.logical_not()).sort());
    if (positive.numel() == 0 || other.numel() == 0 || scores_N.isnan().any().item<bool>()) return NAN;
    const auto below = at::searchsorted(other, positive),
               up_to = at::searchsorted(other, positive, false, true);
    const auto pairs = static_cast<double>(positive.numel()) * static_cast<double>(other.numel());
    return (below.sum() + up_to.sum()).item<double>() / 2 / pairs;
  }

  std::vector<at::Tensor> scores_;  // by batch: [N] or [N, C]
  std::vector<at::Tensor> labels_;  // by batch: [N]
};

}  // namespace looptorch
