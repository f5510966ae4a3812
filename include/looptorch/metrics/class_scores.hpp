// SPDX-License-Identifier: MIT
// Checks the types, shapes and devices of scores and labels, for the metrics of classification: accuracy,
// top-k accuracy and AUROC.
#pragma once

#include <looptorch/base/error.hpp>

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string_view>

namespace looptorch::detail {

/// Throws UsageError, in the name of `measure`, if any labels were outside of the classes.
inline void require_none_outside(std::string_view measure, std::int64_t outside, std::int64_t classes) {
  if (outside > 0)
    throw UsageError(message(measure, ": ", outside, " labels are outside of 0 to ", classes - 1,
                             ". Leave such samples out, as those of padding"));
}

/// Throws UsageError, in the name of `measure`, unless `labels` are integers or bool, [N], on the device of
/// `scores`, which have N rows.
inline void require_labels(std::string_view measure, const at::Tensor& scores, const at::Tensor& labels) {
  if (!scores.defined() || !labels.defined()) throw UsageError(message(measure, ": an undefined tensor"));
  if (labels.is_floating_point() || labels.is_complex())
    throw UsageError(message(measure, ": labels are integers, the numbers of classes, and these are ",
                             labels.scalar_type()));
  if (labels.dim() != 1 || scores.dim() == 0 || scores.size(0) != labels.size(0))
    throw UsageError(message(measure, ": scores of shape ", scores.sizes(), " and labels of shape ",
                             labels.sizes(), "; there must be one label, [N], for each row"));
  if (scores.device() != labels.device())
    throw UsageError(message(measure, ": scores on ", scores.device(), " and labels on ", labels.device(),
                             "; they must be on one device"));
}

/// Throws UsageError as `require_labels` does, and unless `scores` are real, [N, classes].
inline void require_scores(std::string_view measure, const at::Tensor& scores, const at::Tensor& labels,
                           std::int64_t classes) {
  require_labels(measure, scores, labels);
  if (scores.dim() != 2 || scores.size(1) != classes || scores.is_complex())
    throw UsageError(message(measure, ": scores of shape ", scores.sizes(), " and type ",
                             scores.scalar_type(), "; they must be real, [N, ", classes, "]"));
}

}  // namespace looptorch::detail
