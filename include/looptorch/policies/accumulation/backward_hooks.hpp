// SPDX-License-Identifier: MIT
// Passes on each gradient during backward, for UpdateInBackward. BackwardHooks give a gradient to a
// GradientSink as soon as autograd has accumulated it. A sink sums the gradients of a window
// (narrow_sums.hpp, moment_sums.hpp), or calls ParameterUpdate at once, which clips the gradient and updates
// its parameter.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/loop/context.hpp>
#include <looptorch/optim/gradients/gradients.hpp>
#include <looptorch/optim/gradients/norms.hpp>
#include <looptorch/optim/interface/per_parameter_optimizer.hpp>

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <cmath>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace looptorch::detail {

/// Takes gradients. Locks, since a model on several devices runs backward in a thread for each.
class GradientSink {
 public:
  virtual ~GradientSink() = default;

  /// Takes the parameter's gradient, if it has one, and frees it.
  void take(const at::Tensor& parameter) {
    const std::lock_guard lock(mutex_);
    at::NoGradGuard no_gradients;
    at::Tensor& gradient = parameter.mutable_grad();
    if (!gradient.defined()) return;
    consume_gradient(parameter);
    gradient = at::Tensor();
  }

 protected:
  virtual void consume_gradient(const at::Tensor& parameter) = 0;

 private:
  std::mutex mutex_;
};

/// Passes a parameter's gradient to the sink once autograd has accumulated it.
class BackwardHook : public torch::autograd::PostAccumulateGradHook {
 public:
  explicit BackwardHook(std::shared_ptr<GradientSink> sink) : sink_(std::move(sink)) {}
  void operator()(const torch::autograd::Variable& parameter) override { sink_->take(parameter); }

 private:
  std::shared_ptr<GradientSink> sink_;
};

/// Holds the hooks of parameters, and removes them when it is destroyed.
class BackwardHooks {
 public:
  /// Throws UsageError for a parameter that has such a hook already.
  BackwardHooks(const std::vector<at::Tensor>& parameters, const std::shared_ptr<GradientSink>& sink) {
    namespace impl = torch::autograd::impl;
    for (const at::Tensor& parameter : parameters)
      if (impl::post_acc_grad_hooks(parameter))
        throw UsageError(
            message("UpdateInBackward needs the hook that runs after a gradient is accumulated, "
                    "and a parameter of shape ",
                    parameter.sizes(), " has one already: remove it"));
    for (const at::Tensor& parameter : parameters) {
      impl::set_post_acc_grad_hooks(parameter, std::make_unique<BackwardHook>(sink));
      hooked_.push_back(parameter);
    }
  }
  ~BackwardHooks() {
    for (const at::Tensor& parameter : hooked_)
      torch::autograd::impl::set_post_acc_grad_hooks(parameter, nullptr);
  }
  BackwardHooks(const BackwardHooks&) = delete;
  BackwardHooks& operator=(const BackwardHooks&) = delete;

 private:
  std::vector<at::Tensor> hooked_;
};

/// Updates one parameter, whose gradient is the window's except for a factor.
class ParameterUpdate {
 public:
  ParameterUpdate(PerParameterOptimizer& optimizer, double max_norm)
      : optimizer_(&optimizer), max_norm_(max_norm) {}

  /// Sets the factor and the flag of the following updates.
  void begin(const BackwardContext& backward) {
    scale_ = backward.scale;
    scale_.multiply(backward.factor);
    found_ = backward.found_inf;
  }

  void make(const at::Tensor& parameter) {
    std::vector<at::Tensor> gradients{parameter.grad()};
    if (GradientScale scale = scale_; !scale.is_one()) scale.flush(gradients);
    if (max_norm_ < HUGE_VAL) clip(gradients.front());
    optimizer_->update(parameter, found_.defined() ? on_device_of(parameter, found_) : found_);
  }

 private:
  static constexpr double kEpsilon = 1e-6;  // as in torch.nn.utils.clip_grad_norm_

  void clip(const at::Tensor& gradient) const {
    require_dense(gradient, "UpdateInBackward");
    gradient.mul_((max_norm_ / (norm_of_one(gradient, 2) + kEpsilon)).clamp_max_(1.0));
  }

  PerParameterOptimizer* optimizer_;
  double max_norm_;
  GradientScale scale_;
  at::Tensor found_;
};

}  // namespace looptorch::detail
