// SPDX-License-Identifier: MIT
// Lets a backward function add to a parameter's existing gradient in place. This saves memory: the function
// would otherwise return a tensor of the parameter's size, which autograd keeps until all uses of the
// parameter are done.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

#include <mutex>

namespace looptorch::detail {

/// Returns true if hooks wait for the gradient of a leaf.
[[nodiscard]] inline bool has_gradient_hooks(const at::Tensor& leaf) {
  namespace impl = torch::autograd::impl;
  if (!impl::hooks(leaf).empty() || impl::post_acc_grad_hooks(leaf)) return true;
  const auto node = impl::try_get_grad_accumulator(leaf);
  return node && (!node->pre_hooks().empty() || !node->post_hooks().empty());
}

/// Reaches the mutex that LibTorch's accumulator of a leaf holds while it adds to the leaf's gradient.
struct AccumulatorMutex : torch::autograd::Node {
  [[nodiscard]] static std::mutex& of(torch::autograd::Node& accumulator) {
    return accumulator.*(&AccumulatorMutex::mutex_);
  }
};

/// The gradient of `weight` to which the running backward function may add. Converts to false if the function
/// must return its gradient to autograd: `weight` is not a leaf or has no gradient yet, hooks wait for the
/// gradient, only chosen gradients are computed (torch::autograd::grad, or backward with `inputs`), or
/// gradients are differentiated again.
class GradientToAddTo {
 public:
  GradientToAddTo() = default;
  explicit GradientToAddTo(const at::Tensor& weight) {
    if (!weight.is_leaf() || !weight.requires_grad() || at::GradMode::is_enabled()) return;
    const auto* const chosen = torch::autograd::get_current_graph_task_exec_info();
    if (!chosen || !chosen->empty()) return;
    accumulator_ = torch::autograd::impl::try_get_grad_accumulator(weight);
    if (!accumulator_) return;
    // A checkpointed block unpacks a copy of the weight, which has neither its gradient nor its hooks.
    const at::Tensor& leaf = static_cast<torch::autograd::AccumulateGrad&>(*accumulator_).variable;
    if (has_gradient_hooks(leaf)) return;
    const std::lock_guard alone(AccumulatorMutex::of(*accumulator_));
    const at::Tensor& gradient = leaf.grad();
    if (gradient.defined() && gradient.layout() == at::kStrided && !gradient.requires_grad() &&
        gradient.scalar_type() == weight.scalar_type())
      gradient_ = gradient;
  }

  [[nodiscard]] explicit operator bool() const { return gradient_.defined(); }

  /// Calls `add` with the gradient while no other thread adds to it, autograd's included.
  template <class Add>
  void update(const Add& add) const {
    const std::lock_guard alone(AccumulatorMutex::of(*accumulator_));
    add(gradient_);
  }

 private:
  // A std::shared_ptr, or a c10::intrusive_ptr in newer versions of LibTorch.
  decltype(torch::autograd::impl::try_get_grad_accumulator(at::Tensor())) accumulator_;
  at::Tensor gradient_;
};

}  // namespace looptorch::detail
