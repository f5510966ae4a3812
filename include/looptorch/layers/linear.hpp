// SPDX-License-Identifier: MIT
// Provides a faster torch::nn::Linear: matmul and bias are one operator and one node of autograd
// (linear_node.hpp). LibTorch's Linear takes two operators for inputs of more than two dimensions. Under
// autocast, LibTorch's Linear also casts its weight at each use, since it passes on a transposed view, and
// autocast caches no casts of views.
#pragma once

#include <looptorch/layers/linear_node.hpp>

#include <ATen/core/grad_mode.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <memory>
#include <optional>

namespace looptorch {

/// A torch::nn::LinearImpl with the same options, initial values and parameter names, so weights and adapters
/// fit both. Outputs differ in their last bits.
class LinearImpl : public torch::nn::LinearImpl {
 public:
  using torch::nn::LinearImpl::LinearImpl;

  /// Maps `[..., inputs]` to `[..., outputs]`.
  [[nodiscard]] at::Tensor forward(const at::Tensor& input) { return linear_node(input, weight, bias); }

  /// Returns a copy with parameters of its own, on `device` if that is given.
  [[nodiscard]] std::shared_ptr<torch::nn::Module> clone(
      const std::optional<at::Device>& device = std::nullopt) const override {
    const at::NoGradGuard no_gradients;
    auto copy = std::make_shared<LinearImpl>(options);
    const auto own = named_parameters(/*recurse=*/false);
    for (auto& item : copy->named_parameters(/*recurse=*/false)) {
      const at::Tensor& value = own[item.key()];
      item.value().set_data(device ? value.detach().to(*device, /*non_blocking=*/false, /*copy=*/true)
                                   : value.detach().clone());
      item.value().set_requires_grad(value.requires_grad());
    }
    copy->train(is_training());
    return copy;
  }
};
TORCH_MODULE(Linear);

}  // namespace looptorch
