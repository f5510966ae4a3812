// SPDX-License-Identifier: MIT
// Clips the total norm of each update's gradients, as torch.nn.utils.clip_grad_norm_ does, but without a wait
// for the device; a fused optimizer's kernel applies the factor. Costs one norm over the gradients and, on a
// device, eight kernels on single numbers. Use it when single batches destabilise training, as with recurrent
// and attention models. A norm that is NaN or infinite ends the fit by default, before parameters change;
// `on_non_finite` can skip the update instead.
#pragma once

#include <looptorch/base/device/accelerator.hpp>
#include <looptorch/base/device/capture_scope.hpp>
#include <looptorch/base/error.hpp>
#include <looptorch/loop/context.hpp>
#include <looptorch/loop/phase.hpp>
#include <looptorch/loop/step/non_finite.hpp>
#include <looptorch/optim/gradients/norms.hpp>

#include <ATen/ScalarOps.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/div.h>
#include <ATen/ops/nan_to_num.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace looptorch {

/// How ClipGradNorm treats gradients that are NaN or infinite although their losses are finite.
enum class OnNonFinite {
  stop,    ///< The update is not made and the fit ends with NonFiniteGradient.
  skip,    ///< The update is not made and is counted as skipped.
  ignore,  ///< The optimizer uses them.
};

/// Scales gradients so that the norm of all of them together is at most `max_norm`. Each update is clipped by
/// its own norm.
struct ClipGradNorm {
  double max_norm;         ///< Above 0; infinity only measures.
  double norm_type = 2.0;  ///< The p of the p-norm, above 0; infinity for the largest absolute value.
  bool record = false;     ///< Adds each norm to `UpdateView::metrics`, as "gradient_norm".
  /// Overflows under `Autocast<fp16>` are skipped under each of these settings.
  OnNonFinite on_non_finite = OnNonFinite::stop;

  static constexpr Phase phase = Phase::clip;
  static constexpr bool changes_gradients = true;
  static constexpr bool veto_is_rank_invariant = true;
  static constexpr bool shard_aware = true;

  struct State {
    /// The last update's norm before clipping, 0-dim, on the device; undefined before the first.
    at::Tensor norm;
    std::vector<at::Tensor> of_graphs = {};  ///< By update: where its graph writes the norm.
  };

  /// Throws UsageError unless `max_norm` and `norm_type` are above 0.
  void on_fit_begin(FitContext&, State&) const {
    if (!(max_norm > 0)) throw UsageError(message("ClipGradNorm needs a max_norm above 0, got ", max_norm));
    if (!(norm_type > 0))
      throw UsageError(message("ClipGradNorm needs a norm_type above 0, got ", norm_type));
  }

  void before_update(UpdateContext& update, State& state) const {
    const std::vector<at::Tensor>& gradients = update.raw_gradients();
    if (gradients.empty() && !update.sees_shard()) return;
    detail::require_dense(gradients, "ClipGradNorm");
    const at::Tensor norm =
        gradients.empty() ? at::zeros({}, at::TensorOptions(at::kDouble)) : total_norm(gradients);
    const at::Tensor of_all = update.norm_of_all(update.pending().apply(norm), norm_type);
    judge(of_all, update);
    if (max_norm < HUGE_VAL) update.scale_gradients(factor(of_all));
    if (detail::CaptureScope::is_open()) {
      state.of_graphs.resize(std::max(state.of_graphs.size(), update.index() + 1));
      state.of_graphs[update.index()] = of_all;
    } else {
      report(update, state.norm = of_all);
    }
  }

  /// Reports the norm that a graph has left, and will overwrite.
  void replayed_update(UpdateContext& update, State& state) const {
    state.norm = state.of_graphs[update.index()];
    report(update, update.run.sink() ? state.norm.clone() : state.norm);
  }

 private:
  void report(UpdateContext& update, const at::Tensor& norm) const {
    if (MetricSink* const sink = update.run.sink()) sink->record(update.index(), "gradient_norm", norm);
    if (record && !update.vetoed()) add_to_metrics(norm, update.window_metrics());
  }

  /// Adds the norm, which counts if the update is applied, without waiting for the device. Omits a norm that
  /// is not finite, as in an fp16 overflow.
  static void add_to_metrics(const at::Tensor& norm, RunningMeans& metrics) {
    RunningMean& mean = metrics["gradient_norm"];
    if (computes_on_cpu(norm)) {
      if (const double known = detail::cpu_number(norm); std::isfinite(known)) mean.add(known, 1.0);
      return;
    }
    at::NoGradGuard no_gradients;
    const at::Tensor finite = at::nan_to_num(norm, 0.0, 0.0);
    mean.add_sum(finite, Quantity(finite.eq(norm)));
  }

  /// Returns the factor that clips this norm to `max_norm`, at most 1.
  [[nodiscard]] at::Tensor factor(const at::Tensor& norm) const {
    return at::div(at::native::wrapped_scalar_tensor(max_norm), norm + kEpsilon).clamp_max_(1.0);
  }

  static constexpr double kEpsilon = 1e-6;  // as in PyTorch

  void judge(const at::Tensor& norm, UpdateContext& update) const {
    if (on_non_finite == OnNonFinite::ignore || norm.is_meta()) return;
    if (computes_on_cpu(norm))
      act_on(!std::isfinite(detail::cpu_number(norm)), update);
    else
      act_on(detail::zero_if_finite(norm), update);
  }
  template <class Found>
  void act_on(const Found& non_finite, UpdateContext& update) const {
    on_non_finite == OnNonFinite::stop ? update.refuse(non_finite) : update.veto(non_finite);
  }

  [[nodiscard]] at::Tensor total_norm(const std::vector<at::Tensor>& gradients) const {
    const at::NoGradGuard no_gradients;
    return detail::joined_norm(detail::norms_of_each(gradients, norm_type), norm_type);
  }
};

}  // namespace looptorch
