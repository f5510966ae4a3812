// SPDX-License-Identifier: MIT
// Mixed precision: runs matmuls and convolutions of the forward pass and the loss in a 16-bit type, and
// operations that need more precision, such as losses, in fp32. Parameters and their gradients stay in fp32.
// Halves activation memory and is faster on hardware with 16-bit units. Use bf16 on GPUs from Ampere on and
// on CPUs with AMX or AVX512-BF16. Use fp16 on older GPUs; its loss scaling costs one pass over the gradients
// per step. From LibTorch 2.11 on, weights are cast once per window, unless layers recompute or micro-batches
// run as graphs.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/libtorch_version.hpp>
#include <looptorch/base/process/terminal.hpp>
#include <looptorch/base/state_dict.hpp>
#include <looptorch/loop/context.hpp>
#include <looptorch/loop/loss_scale.hpp>
#include <looptorch/loop/parameter_names.hpp>
#include <looptorch/loop/phase.hpp>
#include <looptorch/loop/resume_rule.hpp>

#include <ATen/autocast_mode.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>
#include <c10/util/Exception.h>

#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <optional>
#include <string>

namespace looptorch {

/// bfloat16: fp32's range, 8 bits of precision; needs no loss scaling.
struct bf16 {
  static constexpr at::ScalarType kType = at::kBFloat16;
};

/// IEEE half precision: 11 bits of precision, but gradients below 6e-8 vanish and losses above 65504
/// overflow, so that the loss has to be scaled.
struct fp16 {
  static constexpr at::ScalarType kType = at::kHalf;
};

/// The family of all variants of Autocast: only one of them may be listed.
struct AutocastFamily {};

/// Turns autocast on for `device`'s type while it lives, then restores the former state. Scopes may nest.
/// Without `keeps_casts` a weight is cast at each use.
class AutocastScope {
 public:
  AutocastScope(at::DeviceType device, at::ScalarType type, bool keeps_casts = true)
      : device_(device),
        was_enabled_(at::autocast::is_autocast_enabled(device)),
        previous_(at::autocast::get_autocast_dtype(device)) {
    at::autocast::set_autocast_enabled(device_, true);
    at::autocast::set_autocast_dtype(device_, type);
    if (!keeps_casts) at::autocast::set_autocast_cache_enabled(false);
    at::autocast::increment_nesting();
  }
  ~AutocastScope() {
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(device_, was_enabled_);
    at::autocast::set_autocast_dtype(device_, previous_);
    at::autocast::set_autocast_cache_enabled(kept_casts_);
  }
  AutocastScope(const AutocastScope&) = delete;
  AutocastScope& operator=(const AutocastScope&) = delete;

 private:
  at::DeviceType device_;
  bool was_enabled_;
  at::ScalarType previous_;
  bool kept_casts_ = at::autocast::is_autocast_cache_enabled();
};

namespace detail {

/// Keeps autocast's casts of weights while it lives, beyond the scope that made them: LibTorch clears its
/// cache of casts at the end of a thread's outermost scope.
class KeptCasts {
 public:
  KeptCasts() { at::autocast::increment_nesting(); }
  ~KeptCasts() {
    at::autocast::decrement_nesting();
    at::autocast::clear_cache();
  }
  KeptCasts(const KeptCasts&) = delete;
  KeptCasts& operator=(const KeptCasts&) = delete;
};

/// Lets the window's next micro-batch use the casts of this forward pass.
inline void keep_casts(const ForwardContext& context) {
  if (kCastsKnowGradients && context.kept && !*context.kept) *context.kept = std::make_shared<KeptCasts>();
}

/// "Set at run time": the argument of `Autocast<>`.
struct TypeAtRunTime {};

/// The loss scale of `Autocast<>`, as Autocast<fp16> reports it, and the type that the run has.
struct TypedLossScale : LossScale {
  std::optional<at::ScalarType> type;  ///< Empty before the first fit.
};

/// Turns on autocast, to fp16 by default. On a CPU some kernels lack fp16, and LibTorch's error then names
/// primitives and descriptors, so a warning says once what to do.
class AutocastWithHint {
 public:
  explicit AutocastWithHint(at::DeviceType device, at::ScalarType type = fp16::kType, bool keeps_casts = true)
      : autocast_(device, type, keeps_casts), hints_(device == at::kCPU && type == fp16::kType) {}
  ~AutocastWithHint() {
    if (hints_ && std::uncaught_exceptions() > exceptions_) hint();
  }
  AutocastWithHint(const AutocastWithHint&) = delete;
  AutocastWithHint& operator=(const AutocastWithHint&) = delete;

 private:
  static void hint() noexcept {
    try {
      std::fputs(clearing_code(stderr), stderr);
      TORCH_WARN_ONCE(
          "looptorch: an exception leaves a forward pass under Autocast<fp16> on a CPU. If it speaks of a kernel "
          "or primitive that is missing, use Autocast<bf16>, or fp32 for that layer, as for LSTM. See "
          "docs/errors.md#could-not-create-a-primitive-descriptor");
    } catch (...) {  // a user's warning handler may throw; the current exception matters more
    }
  }

  AutocastScope autocast_;
  bool hints_;
  int exceptions_ = std::uncaught_exceptions();
};

}  // namespace detail

/// Mixed precision: `Autocast<bf16>`, `Autocast<fp16>`, or `Autocast<>` for a type that is set at run time.
/// Another type does not compile.
template <class Type = detail::TypeAtRunTime>
struct Autocast {
  static_assert(sizeof(Type) == 0,
                "looptorch: Autocast<T> needs T = looptorch::fp16 or looptorch::bf16. See "
                "docs/errors.md#autocast-type");
};

/// Runs the forward pass and the loss, in training and in `evaluate`, under autocast to bfloat16.
template <>
struct Autocast<bf16> {
  using family = AutocastFamily;
  static constexpr Phase phase = Phase::check;  // as all of the family, although it scales nothing
  static constexpr ResumeRule resume_rule = ResumeRule::on_request;

  AutocastScope forward_scope(const ForwardContext& context) const {
    detail::keep_casts(context);
    return {context.run.device().type(), bf16::kType};
  }
};

/// Runs the forward pass and the loss in IEEE half precision, with torch.amp.GradScaler's dynamic loss
/// scaling: the loss is multiplied by a scale that doubles after `growth_interval` good steps and halves when
/// gradients overflow. An overflow skips the step: no parameter, moment or count changes, and
/// `FitResult::skipped` counts it. Several updates share the scale; each is skipped by its own overflow. The
/// scale and the decision stay on the device.
///
/// Before an update's first step, an overflow loses no window: it is retried at a lower scale until its
/// gradients are finite. After that the scale is GradScaler's. A window that no scale helps, or whose loss
/// itself is not finite, is skipped as usual.
template <>
struct Autocast<fp16> {
  double initial_scale = 65536.0;       ///< Where the search for a first scale begins, downwards.
  double growth_factor = 2.0;           ///< Above 1.
  double backoff_factor = 0.5;          ///< Between 0 and 1.
  std::int64_t growth_interval = 2000;  ///< Windows in a row without overflow before the scale grows.
  double min_scale = 1e-4;              ///< Below it the fit ends with LossScaleCollapse.

  using family = AutocastFamily;
  using State = LossScale;
  static constexpr Phase phase = Phase::check;
  static constexpr ResumeRule resume_rule = ResumeRule::on_request;

  /// Throws UsageError for options out of range, and for complex parameters.
  void on_fit_begin(FitContext& fit, State& state) const {
    detail::refuse_complex(fit.run, "Autocast<fp16>");
    state.begin(rules(), fit.run.device());
  }

  detail::AutocastWithHint forward_scope(const ForwardContext& context, State&) const {
    detail::keep_casts(context);
    return detail::AutocastWithHint(context.run.device().type());
  }

  LossScale* loss_scale(const Run&, State& state) const { return &state; }

  void state_dict(StateDict& out, State& state) const { state.save(out, rules()); }
  /// Throws SettingDiffers for a scale that grew and backed off by other rules.
  void load_state_dict(const StateDict& in, State& state) const { state.load(in, rules()); }

 private:
  [[nodiscard]] LossScaleRules rules() const {
    return {initial_scale, growth_factor, backoff_factor, growth_interval, min_scale};
  }
};

/// Takes the type at run time, `Autocast<>{.type = at::kHalf}`, for programs with a flag for it. The default
/// is fp16 if the run's device is an accelerator, and bf16 on the CPU: most CPUs lack fp16 kernels, and many
/// older GPUs have no bf16 units.
template <>
struct Autocast<detail::TypeAtRunTime> {
  Autocast<fp16> fp16_scale = {};           ///< The loss scale of fp16.
  std::optional<at::ScalarType> type = {};  ///< at::kHalf or at::kBFloat16, on every device.
  /// Keep the 16-bit copy of a weight until forward ends, as autocast does. If all layers recompute, the
  /// copies are useless: false saves 2 bytes a weight in training. The gradients of a weight that forward
  /// uses several times are then added in the weight's type.
  bool keep_casts = true;

  using family = AutocastFamily;
  using State = detail::TypedLossScale;
  static constexpr Phase phase = Phase::check;
  static constexpr ResumeRule resume_rule = ResumeRule::on_request;

  /// Throws UsageError for another type, for options out of range, and in fp16 for complex parameters.
  void on_fit_begin(FitContext& fit, State& state) const {
    if (type && *type != fp16::kType && *type != bf16::kType)
      throw UsageError(message("Autocast<>'s type is Half or BFloat16, got ", *type));
    state.type = type_on(fit.run.device());
    if (scales(fit.run.device())) fp16_scale.on_fit_begin(fit, state);
  }

  detail::AutocastWithHint forward_scope(const ForwardContext& context, State&) const {
    detail::keep_casts(context);
    const at::Device device = context.run.device();
    return detail::AutocastWithHint(device.type(), type_on(device), keep_casts || !context.training);
  }

  LossScale* loss_scale(const Run& run, State& state) const {
    return scales(run.device()) ? &state : nullptr;
  }

  /// Saves the type that the run has had, and the scale of fp16.
  void state_dict(StateDict& out, State& state) const {
    if (state.type) out.set("type", name(*state.type));
    fp16_scale.state_dict(out, state);
  }
  /// Throws SettingDiffers if `type` is not the state's. Without a type, a run resumed on another kind of
  /// device takes that device's, and a new scale if the state has none.
  void load_state_dict(const StateDict& in, State& state) const {
    if (type) detail::require_same(in, "type", "the 16-bit type", name(*type));
    fp16_scale.load_state_dict(in.contains("scale") ? in : StateDict(), state);
  }

 private:
  [[nodiscard]] at::ScalarType type_on(at::Device device) const {
    return type.value_or(device.is_cpu() ? bf16::kType : fp16::kType);
  }
  [[nodiscard]] bool scales(at::Device device) const { return type_on(device) == fp16::kType; }
  [[nodiscard]] static std::string name(at::ScalarType type) { return type == fp16::kType ? "fp16" : "bf16"; }
};

}  // namespace looptorch
