// SPDX-License-Identifier: MIT
// PerParameterOptimizer, the interface of optimizers that can update a single parameter. UpdateInBackward
// needs it; all of looptorch's optimizers implement it.
#pragma once

#include <ATen/core/Tensor.h>

namespace looptorch {

/// An optimizer's update of one parameter, for callers that update each as soon as its gradient is complete.
/// Not for deletion through this interface.
class PerParameterOptimizer {
 public:
  /// Updates `parameter` by its gradient, as the optimizer's step would. Does nothing if it has no gradient,
  /// is not among the optimizer's parameters, or if `found_inf` (0-dim; undefined means no) is not zero.
  /// Call it from one thread at a time.
  virtual void update(const at::Tensor& parameter, const at::Tensor& found_inf) = 0;

 protected:
  ~PerParameterOptimizer() = default;
};

}  // namespace looptorch
