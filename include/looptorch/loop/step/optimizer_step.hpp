// SPDX-License-Identifier: MIT
// One update's move: what is still to be multiplied into the gradients is folded into the optimizer's kernel
// where it can be, and so is the device's veto.
#pragma once

#include <looptorch/loop/context.hpp>
#include <looptorch/loop/update.hpp>

#include <optional>

namespace looptorch::detail {

/// Whether the update was made; nothing where only the device knows.
template <class Optimizer>
std::optional<bool> step_optimizer(Optimizer& optimizer, UpdateContext& context) {
  if (context.vetoed()) return false;
  const at::Tensor& found = context.found_inf();
  if constexpr (FoldingOptimizer<Optimizer>) {
    if (!optimizer.can_fold(context.pending())) (void)context.gradients();
    optimizer.step(context.pending(), found);
    return found.defined() ? std::nullopt : std::optional(true);
  } else {
    if (found.defined() && found.item<bool>()) return false;
    if (!context.pending().is_one()) (void)context.gradients();
    optimizer.step();
    return true;
  }
}

}  // namespace looptorch::detail
