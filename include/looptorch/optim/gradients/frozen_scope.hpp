// SPDX-License-Identifier: MIT
// Sets `requires_grad` of parameters to false until the end of a scope. While a micro-batch of one update
// runs, the loop freezes the parameters of all other updates in this way.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace looptorch::detail {

/// Keeps parameters from receiving gradients while it lives, and restores exactly the flags that it changed.
class FrozenScope {
 public:
  explicit FrozenScope(const std::vector<at::Tensor>& parameters) {
    for (const at::Tensor& parameter : parameters)
      if (parameter.requires_grad()) {
        frozen_.push_back(parameter);
        parameter.set_requires_grad(false);
      }
  }
  ~FrozenScope() {
    for (const at::Tensor& parameter : frozen_) parameter.set_requires_grad(true);
  }
  FrozenScope(const FrozenScope&) = delete;
  FrozenScope& operator=(const FrozenScope&) = delete;

 private:
  std::vector<at::Tensor> frozen_;
};

}  // namespace looptorch::detail
