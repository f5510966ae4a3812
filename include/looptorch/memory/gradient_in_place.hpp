// SPDX-License-Identifier: MIT
// Lets a backward function add to a parameter's existing gradient in place. This saves memory: the function
// would otherwise return a tensor of the parameter's size, which autograd keeps until all uses of the
// parameter are done.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

namespace looptorch::detail {

/// Returns true if hooks wait for the gradient of a leaf.
[[nodiscard]] inline bool has_gradient_hooks(const at::Tensor& leaf) {
  namespace impl = torch::autograd::impl;
  if (!impl::hooks(leaf).empty() || impl::post_acc_grad_hooks(leaf)) return true;
  const auto node = impl::try_get_grad_accumulator(leaf);
  return node && (!node->pre_hooks().empty() || !node->post_hooks().empty());
}

/// Returns the gradient of `weight` to which the running backward function may add. Returns an undefined
/// tensor if it must return its gradient to autograd: `weight` is not a leaf or has no gradient yet, hooks
/// wait for it, only chosen gradients are computed (torch::autograd::grad, or backward with `inputs`), or
/// they are differentiated again.
[[nodiscard]] inline at::Tensor gradient_to_add_to(const at::Tensor& weight) {
  if (!weight.is_leaf() || !weight.requires_grad()) return {};
  const at::Tensor& gradient = weight.grad();
  if (!gradient.defined() || gradient.layout() != at::kStrided) return {};
  if (gradient.scalar_type() != weight.scalar_type() || gradient.requires_grad()) return {};
  if (at::GradMode::is_enabled() || has_gradient_hooks(weight)) return {};
  const auto* const chosen = torch::autograd::get_current_graph_task_exec_info();
  return chosen && chosen->empty() ? gradient : at::Tensor();
}

}  // namespace looptorch::detail
