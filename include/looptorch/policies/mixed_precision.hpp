// SPDX-License-Identifier: MIT
// Mixed precision whose type is chosen when the program runs: by default fp16 with loss scaling on an
// accelerator and bf16 on a CPU. Use it in programs that run on both, or that have a flag for the type. List
// `Autocast<fp16>` or `Autocast<bf16>` where you know the hardware.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/state_dict.hpp>
#include <looptorch/loop/context.hpp>
#include <looptorch/loop/loss_scale.hpp>
#include <looptorch/loop/may_differ.hpp>
#include <looptorch/loop/phase.hpp>
#include <looptorch/policies/autocast.hpp>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <optional>
#include <string>

namespace looptorch {

namespace detail {

/// The loss scale of MixedPrecision, as Autocast<fp16> reports it, and the type that the run has.
struct MixedPrecisionState : LossScale {
  std::optional<at::ScalarType> type;  ///< Empty before the first fit.
};

}  // namespace detail

/// Runs the forward pass and the loss, in training and in `evaluate`, under autocast to `type`: as
/// `Autocast<fp16>` does or as `Autocast<bf16>` does. Without a type it is fp16 where the run's device is an
/// accelerator, and bf16 where it is the CPU: most CPUs lack fp16 kernels, and many older GPUs have no bf16
/// units.
struct MixedPrecision {
  Autocast<fp16> on_accelerator = {};       ///< The loss scale of fp16.
  std::optional<at::ScalarType> type = {};  ///< at::kHalf or at::kBFloat16, on every device.

  using family = AutocastFamily;
  using State = detail::MixedPrecisionState;
  static constexpr Phase phase = Phase::unscale;
  static constexpr MayDiffer may_differ = MayDiffer::on_request;

  /// Throws UsageError for another type, and for options out of range.
  void on_fit_begin(FitContext& fit, State& state) const {
    if (type && *type != fp16::kType && *type != bf16::kType)
      throw UsageError(message("MixedPrecision's type is Half or BFloat16, got ", *type));
    state.type = type_on(fit.run.device());
    if (scales(fit.run.device())) on_accelerator.on_fit_begin(fit, state);
  }

  detail::HalfScope forward_scope(const ForwardContext& context, State&) const {
    const at::Device device = context.run.device();
    return detail::HalfScope(device.type(), type_on(device));
  }

  LossScale* loss_scale(const Run& run, State& state) const {
    return scales(run.device()) ? &state : nullptr;
  }

  /// Saves the type that the run has had, and the scale of fp16.
  void state_dict(StateDict& out, State& state) const {
    if (state.type) out.set("type", name(*state.type));
    on_accelerator.state_dict(out, state);
  }
  /// Throws SettingDiffers if `type` is not that of the state. Without a type, a run that goes on on another
  /// kind of device takes that device's, and begins with a new scale where the state has none.
  void load_state_dict(const StateDict& in, State& state) const {
    if (type) detail::require_same(in, "type", "the 16-bit type", name(*type));
    on_accelerator.load_state_dict(in.contains("scale") ? in : StateDict(), state);
  }

 private:
  [[nodiscard]] at::ScalarType type_on(at::Device device) const {
    return type.value_or(device.is_cpu() ? bf16::kType : fp16::kType);
  }
  [[nodiscard]] bool scales(at::Device device) const { return type_on(device) == fp16::kType; }
  [[nodiscard]] static std::string name(at::ScalarType type) { return type == fp16::kType ? "fp16" : "bf16"; }
};

}  // namespace looptorch
