// SPDX-License-Identifier: MIT
// Measures how often the right class is among the k with the highest scores, over any number of batches.
// Adding never waits for the device; reading waits.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/metrics/class_scores.hpp>

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>

#include <cmath>
#include <cstdint>

namespace looptorch {

/// Accumulates hits on the device. Ties go to the lower class index, as for `argmax`. NaN is never below
/// another score: a sample with a NaN in its own class is a miss.
class TopKAccuracy {
 public:
  /// Throws UsageError for a `k` below 1.
  explicit TopKAccuracy(std::int64_t k = 5) : k_(k) {
    if (k < 1) throw UsageError(message("TopKAccuracy counts the k best classes, from 1, got ", k));
  }

  /// Adds scores, [N, C] of any real type, and labels, [N] of integers. A label outside of the classes is a
  /// miss. Throws UsageError for other shapes, types or devices, and for fewer than k classes.
  void add(const at::Tensor& scores, const at::Tensor& labels) {
    const std::int64_t classes = scores.defined() && scores.dim() == 2 ? scores.size(1) : 0;
    detail::require_scores("TopKAccuracy", scores, labels, classes);
    if (classes < k_)
      throw UsageError(message("TopKAccuracy counts the ", k_, " best classes, and there are ", classes));
    if (labels.size(0) == 0) return;
    if (hits_.defined() && hits_.device() != labels.device())
      throw UsageError(
          message("TopKAccuracy: a batch on ", labels.device(), " after batches on ", hits_.device()));
    at::NoGradGuard no_grad;
    const auto labels_N1 = labels.to(at::kLong).unsqueeze(1);
    const auto own_N1 = scores.gather(1, labels_N1.clamp(0, classes - 1));
    const auto class_C = at::arange(classes, labels_N1.options());
    const auto is_above_NC =
        scores.lt(own_N1).logical_not().logical_and(scores.ne(own_N1).logical_or(class_C.lt(labels_N1)));
    const auto is_class_N = labels.ge(0).logical_and(labels.lt(classes));
    const auto hits = is_above_NC.sum(1).lt(k_).logical_and(is_class_N).sum();
    hits_ = hits_.defined() ? hits_ + hits : hits;
    count_ += labels.size(0);
  }

  /// Returns the number of samples added so far, without a wait.
  [[nodiscard]] std::int64_t count() const { return count_; }
  /// Returns the share of hits; NaN if there are no samples. Waits for the device.
  [[nodiscard]] double accuracy() const {
    return count_ == 0 ? NAN : hits_.item<double>() / static_cast<double>(count_);
  }

  void reset() { hits_ = at::Tensor(), count_ = 0; }

 private:
  std::int64_t k_;
  std::int64_t count_ = 0;
  at::Tensor hits_;  // 0-dim
};

}  // namespace looptorch
