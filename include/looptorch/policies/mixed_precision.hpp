// SPDX-License-Identifier: MIT
// Mixed precision that fits where the model is: fp16 with loss scaling on an accelerator, bf16 on a CPU. Use
// it in programs that run on both; list `Autocast<fp16>` or `Autocast<bf16>` where you know the hardware.
#pragma once

#include <looptorch/base/state_dict.hpp>
#include <looptorch/loop/context.hpp>
#include <looptorch/loop/may_differ.hpp>
#include <looptorch/loop/phase.hpp>
#include <looptorch/policies/autocast.hpp>
#include <looptorch/policies/parts/loss_scale.hpp>

#include <ATen/core/Tensor.h>

namespace looptorch {

/// Runs the forward pass and the loss, in training and in `evaluate`, under autocast to fp16 as
/// `Autocast<fp16>` does where the run's device is an accelerator, and to bf16 as `Autocast<bf16>` does where
/// it is the CPU: most CPUs lack fp16 kernels, and many older GPUs have no bf16 units.
struct MixedPrecision {
  Autocast<fp16> on_accelerator = {};  ///< The loss scale there.

  using family = AutocastFamily;
  using State = detail::LossScaleState;
  static constexpr Phase phase = Phase::unscale;
  static constexpr MayDiffer may_differ = MayDiffer::on_request;

  bool handles_overflow(const Run& run, State& state) const {
    return scales(run) && on_accelerator.handles_overflow(run, state);
  }

  /// Throws UsageError for options out of range.
  void on_fit_begin(FitContext& fit, State& state) const {
    if (scales(fit.run)) on_accelerator.on_fit_begin(fit, state);
  }

  detail::AutocastScope forward_scope(const ForwardContext& context, State&) const {
    return {context.run.device().type(), scales(context.run) ? fp16::kType : bf16::kType};
  }

  at::Tensor scale_loss(const at::Tensor& loss, State& state) const {
    return state.scale.defined() && !loss.is_cpu() ? on_accelerator.scale_loss(loss, state) : loss;
  }

  /// Throws as `Autocast<fp16>` does.
  void before_update(UpdateContext& update, State& state) const {
    if (scales(update.run)) on_accelerator.before_update(update, state);
  }
  void on_window_end(WindowContext& window, State& state) const {
    if (scales(window.run)) on_accelerator.on_window_end(window, state);
  }
  void on_epoch_end(EpochContext& epoch, State& state) const {
    if (scales(epoch.run)) on_accelerator.on_epoch_end(epoch, state);
  }

  /// Saves nothing on a CPU: a run that goes on there, or comes from there, begins with a new scale.
  void state_dict(StateDict& out, State& state) const { on_accelerator.state_dict(out, state); }
  void load_state_dict(const StateDict& in, State& state) const { on_accelerator.load_state_dict(in, state); }

 private:
  static bool scales(const Run& run) { return !run.device().is_cpu(); }
};

}  // namespace looptorch
