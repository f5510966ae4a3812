// SPDX-License-Identifier: MIT
// Implements the loss scale of fp16 by torch.amp.GradScaler's arithmetic and kernels. A policy gives it to
// the loop by the hook `loss_scale`. The loop calls its functions:
//
//   scaled          multiplies a loss by the scale, before backward (loop/step/micro_batch.hpp)
//   unscale         divides a window's gradients by the scale before policies see them, and vetoes the update
//                   if they overflow
//   back_off        lowers the scale if a window overflows before any update was applied, so that the window
//                   is retried (redo/seek_scale.hpp)
//   adapt           lowers the scale at the end of a window that overflowed, or raises it after many that did
//                   not (loop/step/fit_events.hpp)
//   require_enough  throws if the scale has fallen below its minimum
#pragma once

#include <looptorch/base/device/readback.hpp>
#include <looptorch/base/error.hpp>
#include <looptorch/base/state_dict.hpp>
#include <looptorch/loop/context.hpp>
#include <looptorch/optim/interface/any_optimizer.hpp>
#include <looptorch/optim/interface/small_updates.hpp>

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale.h>
#include <ATen/ops/_amp_update_scale.h>
#include <ATen/ops/full.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace looptorch {

/// Gradients overflowed repeatedly until the loss scale fell below `Autocast<fp16>::min_scale`.
struct LossScaleCollapse : Error {
  using Error::Error;
};

/// How a loss scale begins and changes: the options of `Autocast<fp16>`.
struct LossScaleRules {
  double initial_scale;
  double growth_factor;
  double backoff_factor;
  std::int64_t growth_interval;
  double min_scale;
};

/// A loss scale and its pending changes. All of it stays on the device but for a copy that the host reads
/// later.
struct LossScale {
  at::Tensor scale;           ///< 0-dim fp32, on the device; losses are multiplied by it.
  at::Tensor growth_tracker;  ///< 0-dim int32, on the device: windows without overflow since the last change.

  /// Begins a fit with the current scale. Throws UsageError for rules out of range.
  void begin(const LossScaleRules& rules, at::Device device) {
    check(rules_ = rules);
    const at::TensorOptions options = at::TensorOptions().device(device);
    if (!scale.defined()) {
      known_scale_ = rules.initial_scale;
      scale = at::full({}, rules.initial_scale, options.dtype(at::kFloat));
      growth_tracker = at::zeros({}, options.dtype(at::kInt));
    }
    follow(device);
    found_ = at::Tensor();  // may stem from a window that an exception ended
  }

  /// Returns the loss times the scale. Moves the scale to the device of the loss.
  at::Tensor scaled(const at::Tensor& loss) {
    if (scale.device() != loss.device()) follow(loss.device());
    return loss * scale;
  }

  /// Backs off for a window that is retried; `retries` counts its earlier retries. If the scale falls below
  /// `min_scale`, restores the window's initial scale and returns false: the gradients overflow at any scale.
  /// Waits for the device.
  [[nodiscard]] bool back_off(std::int64_t retries) {
    if (retries == 0) before_ = {scale.clone(), growth_tracker.clone()};
    const double least = std::max(rules_.min_scale, double{std::numeric_limits<float>::min()});
    const double lower = scale.item<double>() * rules_.backoff_factor;
    const bool has_room = lower >= least;
    if (has_room) {
      at::_amp_update_scale_(scale, growth_tracker, at::ones_like(scale), 1 / rules_.backoff_factor,
                             rules_.backoff_factor, /*growth_interval=*/1);
      read_.start(known_scale_ = static_cast<float>(lower));
    } else {
      scale.copy_(before_.first), growth_tracker.copy_(before_.second);
      read_.start(scale);
    }
    return has_room;
  }

  /// Divides the update's gradients by the scale in one pass, and vetoes the update if one is NaN or
  /// infinite. If some are in fp16, whose range the quotient could exceed, the optimizer divides instead.
  /// Throws LossScaleCollapse, and UsageError for bf16 parameters and for fp16 ones of an optimizer that does
  /// not round them stochastically.
  void unscale(UpdateContext& update) {
    begin_unscale(update);
    note(divide(update));
  }
  /// Does the part of `unscale` on the host, before `divide`.
  void begin_unscale(UpdateContext& update) {
    require_enough(update.run.progress());
    if (known_scale_ > 0 && (!update.raw_gradients().empty() || update.sees_shard()))
      update.run.offer("loss_scale", known_scale_);
  }
  /// Does the part of `unscale` on the device, which a graph may hold. Returns whether the gradients
  /// overflow, as a tensor; undefined if there are none.
  [[nodiscard]] at::Tensor divide(UpdateContext& update) {
    const std::vector<at::Tensor>& gradients = update.raw_gradients();
    if (gradients.empty() && !update.sees_shard()) return {};
    const bool narrow = has_fp16(gradients, update);
    detail::require_dense(gradients, "Autocast<fp16>");
    const at::Tensor multiplier = narrow ? at::ones_like(scale) : factor(update, gradients);
    at::Tensor found;
    if (!gradients.empty())
      detail::for_each_alike(gradients, [&](at::TensorList on_one) {
        at::Tensor here = at::zeros({}, scale.options().device(on_one.front().device()));
        at::_amp_foreach_non_finite_check_and_unscale_(on_one, here,
                                                       detail::on_device_of(on_one.front(), multiplier));
        found = found.defined() ? at::maximum(found, detail::on_device_of(found, here)) : here;
      });
    if (narrow) update.scale_gradients(scale.reciprocal());
    if (update.sees_shard()) found = update.found_by_any(found.defined() ? found : at::zeros_like(scale));
    update.veto(found);
    return found;
  }
  /// Records for `adapt` whether gradients overflowed. Keeps the tensor.
  void note(const at::Tensor& found) {
    if (!found.defined()) return;
    found_ = found_.defined() ? at::maximum(found_, detail::on_device_of(found_, found))
                              : detail::on_device_of(scale, found);
  }

  /// Grows or lowers the scale after a window. A window without a backward changes nothing.
  void adapt() {
    if (!found_.defined()) return;
    at::_amp_update_scale_(scale, growth_tracker, found_, rules_.growth_factor, rules_.backoff_factor,
                           rules_.growth_interval);
    found_ = at::Tensor();
    read_.start(scale);
  }

  /// Throws LossScaleCollapse if the last window lowered the scale below `min_scale`.
  void require_enough(const Progress& progress) {
    if (!read_.under_way()) return;
    if (const double now = known_scale_ = read_.take(); !(now >= rules_.min_scale))
      throw LossScaleCollapse(
          message("the loss scale fell to ", now, ", below min_scale ", rules_.min_scale, ", after step ",
                  progress.step, " (", progress.skipped,
                  " steps skipped): gradients overflow fp16 whatever the scale. Look for a NaN in the data, "
                  "lower the learning rate, or use Autocast<bf16>"));
  }

  /// Saves the scale, with its rules as text.
  void save(StateDict& out, const LossScaleRules& rules) const {
    if (!scale.defined()) return;
    out.set("scale", scale.clone());
    out.set("growth_tracker", growth_tracker.clone());
    out.set("rules", text(rules));
  }
  /// Throws SettingDiffers for a scale with other rules. States of earlier versions have none.
  void load(const StateDict& in, const LossScaleRules& rules) {
    *this = LossScale{};  // a scale that is still being read belongs to another run
    rules_ = rules;
    if (in.empty()) return;
    detail::require_same(in, "rules", "the loss scale", text(rules));
    scale = in.get<at::Tensor>("scale").clone();
    growth_tracker = in.get<at::Tensor>("growth_tracker").clone();
    read_.start(scale);
  }

 private:
  static void check(const LossScaleRules& rules) {
    constexpr double kMost = std::numeric_limits<float>::max();  // scales are fp32
    const bool valid = rules.initial_scale <= kMost && static_cast<float>(rules.initial_scale) > 0 &&
                       rules.growth_factor > 1 && rules.backoff_factor > 0 && rules.backoff_factor < 1 &&
                       rules.growth_interval > 0 && rules.min_scale >= 0;
    if (!valid)
      throw UsageError(message(
          "Autocast<fp16> needs initial_scale above 0 in the range of fp32, growth_factor above 1, "
          "backoff_factor between 0 and 1, growth_interval of at least 1 and min_scale of at least 0; got ",
          rules.initial_scale, ", ", rules.growth_factor, ", ", rules.backoff_factor, ", ",
          rules.growth_interval, " and ", rules.min_scale));
  }
  static std::string text(const LossScaleRules& rules) {
    return message("x ", rules.growth_factor, " after ", rules.growth_interval, " windows, x ",
                   rules.backoff_factor, " on overflow");
  }

  void follow(at::Device device) {
    scale = scale.to(device);
    growth_tracker = growth_tracker.to(device);
    if (found_.defined()) found_ = found_.to(device);
  }

  /// Returns the factor that turns gradients of the scaled loss into the window's: 1 / scale, times the
  /// pending factor. For fp64 gradients the pending factor is applied separately, since the kernel multiplies
  /// by an fp32 number.
  at::Tensor factor(UpdateContext& update, const std::vector<at::Tensor>& gradients) const {
    const bool any_double = std::any_of(gradients.begin(), gradients.end(), [](const at::Tensor& gradient) {
      return gradient.scalar_type() == at::kDouble;
    });
    const GradientScale pending = any_double ? GradientScale{} : update.take_pending();
    if (pending.is_one()) return scale.reciprocal();  // the same bits in fp32 as rounded from fp64
    return pending.apply(scale.to(at::kDouble).reciprocal()).to(at::kFloat);
  }

  /// True if a gradient is in fp16. Throws UsageError for a gradient that `unscale` refuses.
  static bool has_fp16(const std::vector<at::Tensor>& gradients, const UpdateContext& update) {
    bool found = false;
    for (const at::Tensor& gradient : gradients) {
      if (gradient.scalar_type() == at::kBFloat16)
        refuse(gradient, update, "bf16 needs no loss scale: take Autocast<bf16>");
      found |= gradient.scalar_type() == at::kHalf;
      if (gradient.scalar_type() == at::kHalf && !divides_within(update.optimizer()))
        refuse(gradient, update,
               "AdamWBf16, AdamW8bit and Adafactor divide within their update: take one of them, or keep the "
               "model in fp32; autocast makes the 16-bit copies");
    }
    return found;
  }
  static bool divides_within(const torch::optim::Optimizer& optimizer) {
    return dynamic_cast<const AnyOptimizer*>(&optimizer) &&
           dynamic_cast<const KeepsSmallUpdates*>(&optimizer);
  }
  [[noreturn]] static void refuse(const at::Tensor& gradient, const UpdateContext& update,
                                  const char* remedy) {
    throw UsageError(message("Autocast<fp16> cannot unscale the gradients of ", update.view().name,
                             ": a parameter of shape ", gradient.sizes(), " is itself in ",
                             gradient.scalar_type(), ". ", remedy));
  }

  std::pair<at::Tensor, at::Tensor> before_;  // scale and tracker before the first retry of the window
  at::Tensor found_;                          // whether the window under way overflowed, over all updates
  LossScaleRules rules_{};
  detail::Readback read_;
  double known_scale_ = 0;  // as the host has read it last; 0: not yet
};

}  // namespace looptorch
