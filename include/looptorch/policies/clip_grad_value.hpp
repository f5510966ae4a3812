// SPDX-License-Identifier: MIT
// Clips each element of the gradients to [-clip_value, clip_value], as torch.nn.utils.clip_grad_value_ does.
// Costs two passes over the gradients; nothing waits for the device. Use it when single elements throw
// training off, as in recurrent models; it changes the gradient's direction, which ClipGradNorm does not.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/loop/context.hpp>
#include <looptorch/loop/parameter_names.hpp>
#include <looptorch/loop/phase.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/ops/_foreach_clamp_max.h>
#include <ATen/ops/_foreach_clamp_min.h>

#include <cmath>
#include <vector>

namespace looptorch {

struct ClipGradNorm;

/// Bounds the accumulated and averaged gradients of each update. Runs after ClipGradNorm if both are listed.
/// NaN stays NaN.
struct ClipGradValue {
  double clip_value;  ///< Above 0 and finite.

  static constexpr Phase phase = Phase::clip;
  using runs_after = After<ClipGradNorm>;
  static constexpr bool changes_gradients = true;
  static constexpr bool veto_is_rank_invariant = true;
  static constexpr bool shard_aware = true;

  /// Throws UsageError unless `clip_value` is above 0 and finite, and for complex parameters.
  void on_fit_begin(FitContext& fit) const {
    if (!(clip_value > 0 && std::isfinite(clip_value)))
      throw UsageError(message("ClipGradValue needs a finite clip_value above 0, got ", clip_value));
    detail::refuse_complex(fit.run, "ClipGradValue");
  }

  void before_update(UpdateContext& update) const {
    const std::vector<at::Tensor>& gradients = update.gradients();
    if (gradients.empty()) return;
    detail::require_dense(gradients, "ClipGradValue");
    at::_foreach_clamp_min_(gradients, -clip_value);
    at::_foreach_clamp_max_(gradients, clip_value);
  }
  void replayed_update(UpdateContext&) const {}
};

}  // namespace looptorch
