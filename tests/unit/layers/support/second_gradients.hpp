// SPDX-License-Identifier: MIT
// Differentiates a layer twice, to compare a node of autograd with the layers that it replaces.
#pragma once

#include "support/precompiled.hpp"

#include <vector>

namespace looptorch::testing {

/// Returns the gradients of the sum of the squared gradients of `loss`, by `x` and by the parameters.
inline std::vector<at::Tensor> second_gradients(const at::Tensor& loss, const at::Tensor& x,
                                                const std::vector<at::Tensor>& parameters) {
  std::vector<at::Tensor> inputs{x};
  inputs.insert(inputs.end(), parameters.begin(), parameters.end());
  const auto first = torch::autograd::grad({loss}, inputs, {}, {}, /*create_graph=*/true);
  at::Tensor sum = first[0].square().sum();
  for (const at::Tensor& gradient : first) sum = sum + gradient.square().sum();
  return torch::autograd::grad({sum}, inputs);
}

}  // namespace looptorch::testing
