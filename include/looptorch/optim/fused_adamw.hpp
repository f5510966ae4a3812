// SPDX-License-Identifier: MIT
// AdamW in one kernel a parameter group (at::_fused_adamw_): on a CPU and on CUDA several times faster than
// torch::optim::AdamW, with torch.optim.AdamW's numbers. Averaging, unscaling and clipping of gradients are
// folded into the kernel, and so is the decision to skip an overflowed step, without a wait for the device.
// Memory: two moments a parameter.
#pragma once

#include <looptorch/error.hpp>
#include <looptorch/loop/gradients.hpp>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_sub.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/optim/optimizer.h>

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace looptorch {

/// Hyper-parameters of AdamW (Loshchilov and Hutter, 2019), with PyTorch's defaults.
struct FusedAdamWOptions {
  double lr = 1e-3;                            ///< At least 0.
  std::array<double, 2> betas = {0.9, 0.999};  ///< Decay rates of the first and second moment, in [0, 1).
  double eps = 1e-8;                           ///< Added to the root of the second moment; at least 0.
  double weight_decay = 1e-2;                  ///< Decoupled: parameters shrink by lr x weight_decay a step.
  bool amsgrad = false;                        ///< Divide by the largest second moment seen.
};

namespace detail {

/// FusedAdamWOptions as LibTorch's parameter groups hold them; `get_lr` and `set_lr` serve schedules.
struct FusedAdamWGroupOptions : torch::optim::OptimizerCloneableOptions<FusedAdamWGroupOptions> {
  explicit FusedAdamWGroupOptions(FusedAdamWOptions options) : values(options) {}
  double get_lr() const override { return values.lr; }
  void set_lr(const double lr) override { values.lr = lr; }
  FusedAdamWOptions values;
};

inline FusedAdamWOptions checked(const FusedAdamWOptions& options) {
  const auto [beta1, beta2] = options.betas;
  const bool valid = options.lr >= 0 && options.eps >= 0 && options.weight_decay >= 0 && beta1 >= 0 &&
                     beta1 < 1 && beta2 >= 0 && beta2 < 1;
  if (!valid)
    throw UsageError(message(
        "FusedAdamW needs lr, eps and weight_decay of at least 0 and betas in [0, 1); got lr ", options.lr,
        ", betas ", beta1, " and ", beta2, ", eps ", options.eps, ", weight_decay ", options.weight_decay));
  return options;
}

}  // namespace detail

class FusedAdamW : public torch::optim::Optimizer {
 public:
  /// Takes a parameter that is listed twice, as a tied weight is, once. Throws UsageError for options out of
  /// range.
  explicit FusedAdamW(const std::vector<at::Tensor>& parameters, FusedAdamWOptions options = {})
      : FusedAdamW(std::vector<torch::optim::OptimizerParamGroup>{torch::optim::OptimizerParamGroup(
                       detail::distinct(parameters))},
                   options) {}

  /// For groups with rates of their own: make each group's options by `FusedAdamW::group`.
  explicit FusedAdamW(const std::vector<torch::optim::OptimizerParamGroup>& groups,
                      FusedAdamWOptions defaults = {})
      : Optimizer(groups, std::make_unique<detail::FusedAdamWGroupOptions>(detail::checked(defaults))) {}

  /// A parameter group with options of its own.
  [[nodiscard]] static torch::optim::OptimizerParamGroup group(std::vector<at::Tensor> parameters,
                                                               FusedAdamWOptions options) {
    return {std::move(parameters),
            std::make_unique<detail::FusedAdamWGroupOptions>(detail::checked(options))};
  }

  /// Updates each parameter that has a gradient; others, and their moments, stay as they are.
  at::Tensor step(LossClosure closure = nullptr) override {
    at::Tensor loss;
    if (closure) {
      at::AutoGradMode with_gradients(true);
      loss = closure();
    }
    step(GradientScale{}, at::Tensor());
    return loss;
  }

  /// The same for gradients that `scale` still has to multiply; where `found_inf` (0-dim; undefined: no) is
  /// not zero nothing changes, step counts included. Never waits for the device.
  void step(const GradientScale& scale, const at::Tensor& found_inf) {
    at::NoGradGuard no_gradients;
    moments_.resize(param_groups().size());
    for (std::size_t i = 0; i < moments_.size(); ++i)
      step_group(param_groups()[i], moments_[i], scale, found_inf);
  }

  /// True when folding `scale` into the kernel, which divides by an fp32 number, loses no precision.
  [[nodiscard]] bool can_fold(const GradientScale& scale) const {
    if (scale.is_one()) return true;
    for (const auto& group : param_groups())
      for (const at::Tensor& parameter : group.params())
        if (parameter.scalar_type() == at::kDouble) return false;
    return true;
  }

  /// Moments and step counts of one parameter group, each in the order of its parameters.
  struct Moments {
    std::vector<at::Tensor> first;       ///< Like the parameters; zeros before a parameter's first gradient.
    std::vector<at::Tensor> second;      ///< Like the parameters.
    std::vector<at::Tensor> max_second;  ///< Like the parameters with `amsgrad`, else empty.
    std::vector<at::Tensor> steps;       ///< 0-dim fp32.
  };
  [[nodiscard]] const std::vector<Moments>& moments() const { return moments_; }

 private:
  /// The lists that the kernel takes: all of a group, or those of its parameters that have a gradient.
  struct Lists {
    std::vector<at::Tensor> parameters, gradients, first, second, max_second, steps;
    void clear() {
      for (auto* list : {&parameters, &gradients, &first, &second, &max_second, &steps}) list->clear();
    }
  };

  void step_group(torch::optim::OptimizerParamGroup& group, Moments& moments, const GradientScale& scale,
                  const at::Tensor& found_inf) {
    const auto& options = static_cast<const detail::FusedAdamWGroupOptions&>(group.options()).values;
    grow(moments, group.params(), options.amsgrad);
    gather(group.params(), moments, options.amsgrad);
    if (lists_.gradients.empty()) return;
    run_kernel(options, scale, found_inf);
    lists_.clear();  // so that no gradient outlives the step
  }

  void run_kernel(const FusedAdamWOptions& options, const GradientScale& scale, const at::Tensor& found_inf) {
    const at::Device device = lists_.parameters.front().device();
    std::optional<at::Tensor> divisor, found;
    if (!scale.is_one()) divisor = scale.reciprocal(device);
    if (found_inf.defined()) found = found_inf.ne(0).to(at::TensorOptions(at::kFloat).device(device));
    at::_foreach_add_(lists_.steps, 1);
    at::_fused_adamw_(lists_.parameters, lists_.gradients, lists_.first, lists_.second, lists_.max_second,
                      lists_.steps, options.lr, options.betas[0], options.betas[1], options.weight_decay,
                      options.eps, options.amsgrad,
                      /*maximize=*/false, divisor, found);
    if (found) at::_foreach_sub_(lists_.steps, std::vector<at::Tensor>(lists_.steps.size(), *found));
  }

  static void grow(Moments& moments, const std::vector<at::Tensor>& parameters, bool amsgrad) {
    const auto grow_zeros = [&](std::vector<at::Tensor>& list) {
      for (std::size_t i = list.size(); i < parameters.size(); ++i)
        list.push_back(at::zeros_like(parameters[i]));
    };
    grow_zeros(moments.first);
    grow_zeros(moments.second);
    if (amsgrad) grow_zeros(moments.max_second);
    for (std::size_t i = moments.steps.size(); i < parameters.size(); ++i)
      moments.steps.push_back(at::zeros({}, at::TensorOptions(at::kFloat).device(parameters[i].device())));
  }

  void gather(const std::vector<at::Tensor>& parameters, const Moments& moments, bool amsgrad) {
    lists_.clear();  // an exception may have left some
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const at::Tensor& gradient = parameters[i].grad();
      if (!gradient.defined()) continue;
      lists_.parameters.push_back(parameters[i]);
      lists_.gradients.push_back(gradient);
      lists_.first.push_back(moments.first[i]);
      lists_.second.push_back(moments.second[i]);
      lists_.steps.push_back(moments.steps[i]);
      if (amsgrad) lists_.max_second.push_back(moments.max_second[i]);
    }
  }

  std::vector<Moments> moments_;
  Lists lists_;  // kept between steps for its capacity
};

}  // namespace looptorch
