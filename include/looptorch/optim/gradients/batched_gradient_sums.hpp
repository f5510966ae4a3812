// SPDX-License-Identifier: MIT
// Adds a micro-batch's small gradients to the sums of earlier micro-batches, dozens of tensors with one
// kernel launch. Autograd would launch a kernel for each tensor. The loop uses BatchedGradientSums on all
// devices but the CPU.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_add.h>
#include <torch/csrc/autograd/variable.h>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace looptorch::detail {

/// Collects a micro-batch's small gradients apart from the sums so far, and adds them with one launch.
/// Restores the sums on destruction. Sums equal autograd's bit for bit, except for an embedding whose
/// gradient is dense at first and sparse later. Leaves to autograd: large gradients, whose second copy would
/// take memory; sparse ones; those with hooks.
class BatchedGradientSums {
 public:
  static constexpr std::int64_t kMaxElements = 4096;  // 16 KB a tensor, when activations are gone

  explicit BatchedGradientSums(const std::vector<at::Tensor>& parameters) {
    for (const at::Tensor& parameter : parameters) {
      at::Tensor& sum = parameter.mutable_grad();
      if (!sum.defined() || sum.numel() > kMaxElements || sum.layout() != at::kStrided ||
          torch::autograd::impl::post_acc_grad_hooks(parameter))
        continue;
      parameters_.push_back(parameter);
      sums_.push_back(std::exchange(sum, {}));
    }
  }
  ~BatchedGradientSums() { restore(); }
  BatchedGradientSums(const BatchedGradientSums&) = delete;
  BatchedGradientSums& operator=(const BatchedGradientSums&) = delete;

  /// Adds what backward has made.
  void add() {
    at::NoGradGuard no_gradients;
    std::vector<at::Tensor> sums, made;
    for (std::size_t i = 0; i < sums_.size(); ++i) {
      at::Tensor& gradient = parameters_[i].mutable_grad();
      if (!gradient.defined()) continue;
      if (gradient.layout() == at::kStrided)
        sums.push_back(sums_[i]), made.push_back(std::move(gradient));
      else
        sums_[i].add_(gradient);
    }
    if (!sums.empty()) at::_foreach_add_(sums, made);
    for (const at::Tensor& sum : sums) torch::autograd::impl::bump_version(sum);  // operators on lists do not
    restore();
  }

 private:
  void restore() {
    for (std::size_t i = 0; i < sums_.size(); ++i) parameters_[i].mutable_grad() = std::move(sums_[i]);
    sums_.clear();
  }

  std::vector<at::Tensor> parameters_, sums_;
};

}  // namespace looptorch::detail
