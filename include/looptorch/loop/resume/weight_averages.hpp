// SPDX-License-Identifier: MIT
// The averages that evaluations use in place of the model's weights, from the policy that keeps them.
#pragma once

#include <looptorch/loop/compose/hooks.hpp>
#include <looptorch/state/weights/tensor_map.hpp>

namespace looptorch::detail {

/// Returns the weights' averages by name, from the policy that keeps them; empty without one.
template <class Stack>
[[nodiscard]] TensorMap weight_averages(Stack& stack) {
  TensorMap averages;
  stack.template run<averaged_weights_hook>(averages);
  return averages;
}

}  // namespace looptorch::detail
