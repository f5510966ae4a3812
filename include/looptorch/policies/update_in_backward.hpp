// SPDX-License-Identifier: MIT
// Updates each parameter during backward, as soon as its gradient exists, and frees the gradient: no full set
// of gradients is ever held, which saves 4 bytes a parameter in fp32. The numbers are those of updates at the
// window's end. Use it when gradients are what does not fit, with one micro-batch a window.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/loop/compose/rules.hpp>
#include <looptorch/loop/context.hpp>
#include <looptorch/loop/may_differ.hpp>
#include <looptorch/loop/phase.hpp>
#include <looptorch/loop/step/non_finite.hpp>
#include <looptorch/optim/gradients.hpp>
#include <looptorch/optim/per_parameter_optimizer.hpp>
#include <looptorch/policies/accumulate.hpp>
#include <looptorch/policies/autocast.hpp>
#include <looptorch/policies/clip_grad_norm.hpp>
#include <looptorch/policies/clip_grad_value.hpp>
#include <looptorch/policies/mixed_precision.hpp>
#include <looptorch/policies/retry_on_oom.hpp>
#include <looptorch/policies/skip_bad_windows.hpp>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <cmath>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace looptorch {
namespace detail {

/// Updates parameters for the hooks of one fit. A model on several devices is differentiated by a thread for
/// each.
class BackwardUpdates {
 public:
  BackwardUpdates(PerParameterOptimizer& optimizer, double max_norm)
      : optimizer_(&optimizer), max_norm_(max_norm) {}

  /// Notes whether the loss that is about to be differentiated is NaN or infinite, without a wait for its
  /// device. On a CPU the loop does not differentiate such a loss.
  void judge(const at::Tensor& loss) {
    found_ = loss.is_cpu() || loss.is_meta() ? at::Tensor() : is_non_finite(loss.detach());
  }

  void apply(const at::Tensor& parameter) {
    const std::lock_guard lock(mutex_);
    at::NoGradGuard no_gradients;
    at::Tensor& gradient = parameter.mutable_grad();
    if (!gradient.defined()) return;
    if (max_norm_ < HUGE_VAL) {
      require_dense(gradient, "UpdateInBackward");
      gradient.mul_((max_norm_ / (at::linalg_vector_norm(gradient) + kEpsilon)).clamp_max_(1.0));
    }
    optimizer_->update(parameter, found_.defined() ? beside(parameter, found_) : found_);
    gradient = at::Tensor();
  }

 private:
  static constexpr double kEpsilon = 1e-6;  // as in torch.nn.utils.clip_grad_norm_

  PerParameterOptimizer* optimizer_;
  double max_norm_;
  at::Tensor found_;
  std::mutex mutex_;
};

class UpdateHook : public torch::autograd::PostAccumulateGradHook {
 public:
  explicit UpdateHook(std::shared_ptr<BackwardUpdates> updates) : updates_(std::move(updates)) {}
  void operator()(const torch::autograd::Variable& parameter) override { updates_->apply(parameter); }

 private:
  std::shared_ptr<BackwardUpdates> updates_;
};

/// Holds the hooks of parameters, and removes them when it is destroyed.
class UpdateHooks {
 public:
  /// Throws UsageError for a parameter that has such a hook already.
  UpdateHooks(const std::vector<at::Tensor>& parameters, const std::shared_ptr<BackwardUpdates>& updates) {
    namespace impl = torch::autograd::impl;
    for (const at::Tensor& parameter : parameters)
      if (impl::post_acc_grad_hooks(parameter))
        throw UsageError(
            message("UpdateInBackward needs the hook that runs after a gradient is accumulated, "
                    "and a parameter of shape ",
                    parameter.sizes(), " has one already: remove it"));
    for (const at::Tensor& parameter : parameters) {
      impl::set_post_acc_grad_hooks(parameter, std::make_unique<UpdateHook>(updates));
      hooked_.push_back(parameter);
    }
  }
  ~UpdateHooks() {
    for (const at::Tensor& parameter : hooked_)
      torch::autograd::impl::set_post_acc_grad_hooks(parameter, nullptr);
  }
  UpdateHooks(const UpdateHooks&) = delete;
  UpdateHooks& operator=(const UpdateHooks&) = delete;

 private:
  std::vector<at::Tensor> hooked_;
};

}  // namespace detail

/// Updates each parameter during backward. Needs one update, by an optimizer that is a PerParameterOptimizer.
/// Policies see no gradients before an update. A backward that throws leaves some parameters updated.
struct UpdateInBackward {
  double max_norm = HUGE_VAL;  ///< Largest 2-norm of each parameter's own gradient, above 0; infinity: any.

  using excludes = ExclusionList<
      Excludes<SkipBadWindows, "a window is left out before its update, which is made in backward by then",
               "List one of the two">,
      Excludes<AccumulateFamily, "each gradient is applied and freed in the micro-batch that makes it",
               "Drop Accumulate, or train with AdamW8bit or AdamWBf16 and keep the gradients">,
      Excludes<
          ClipGradNorm, "the norm of all gradients is known only when all exist",
          "Use UpdateInBackward{.max_norm = 1.0}, which clips each parameter's gradient by its own norm">,
      Excludes<
          ClipGradValue, "no gradient is left when it would clip",
          "Use UpdateInBackward{.max_norm = 1.0}, which clips each parameter's gradient by its own norm">,
      Excludes<Autocast<fp16>,
               "an overflow is known only when all gradients exist, and some are applied by then",
               "Use Autocast<bf16>, which needs no loss scaling">,
      Excludes<RetryOnOom, "memory that runs out in backward finds some parameters updated already",
               "Drop RetryOnOom, and resume from a snapshot">,
      Excludes<MixedPrecision,
               "it may scale losses for fp16, whose overflow is known only when all gradients exist",
               "Use Autocast<bf16>">>;
  static constexpr Phase phase = Phase::update;
  static constexpr bool updates_in_backward = true;
  static constexpr MayDiffer may_differ = MayDiffer::on_request;

  struct State {
    std::shared_ptr<detail::BackwardUpdates> updates;
    std::shared_ptr<detail::UpdateHooks> hooks;
  };

  /// Throws UsageError for a max_norm that is not above 0, and for parameters that have such hooks already.
  void on_fit_begin(FitContext& fit, State& state) const {
    if (!(max_norm > 0))
      throw UsageError(message("UpdateInBackward needs a max_norm above 0, got ", max_norm));
    const UpdateView& view = fit.run.updates()[0];
    auto* optimizer = dynamic_cast<PerParameterOptimizer*>(view.optimizer);
    if (!optimizer)
      throw UsageError("UpdateInBackward needs an optimizer that is a looptorch::PerParameterOptimizer");
    state.hooks = nullptr;
    state.updates = std::make_shared<detail::BackwardUpdates>(*optimizer, max_norm);
    state.hooks = std::make_shared<detail::UpdateHooks>(view.parameters, state.updates);
  }

  at::Tensor scale_loss(const at::Tensor& loss, State& state) const {
    state.updates->judge(loss);
    return loss;
  }

  void on_fit_end(FitContext&, State& state) const { state.hooks = nullptr; }
};

}  // namespace looptorch
