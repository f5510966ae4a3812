// SPDX-License-Identifier: MIT
// Performs an update's optimizer step. The factor that is still pending on the gradients is folded into the
// optimizer's kernel if it can be, and so is a veto that only the device knows.
#pragma once

#include <looptorch/loop/compose/policy_stack.hpp>
#include <looptorch/loop/context.hpp>
#include <looptorch/loop/update.hpp>
#include <looptorch/optim/any_optimizer.hpp>

#include <optional>
#include <type_traits>

namespace looptorch::detail {

/// Returns whether the update was made; empty where only the device knows.
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

/// Moves the parameters of an update by one step of its optimizer.
struct MoveByStep {
  template <class Optimizer>
  std::optional<bool> operator()(Optimizer& optimizer, UpdateContext& context, const GradientScale&) const {
    return step_optimizer(optimizer, context);
  }
};

/// Lets each optimizer compile its kernels as a fit begins, so that no step does: parameters may have come to
/// their device after it was made.
template <class Engine>
void prepare_optimizers(Engine& engine) {
  for_each_index<Engine::kUpdates>([&](auto i) {
    auto& optimizer = *engine.template update<i>().optimizer;
    if constexpr (std::is_base_of_v<AnyOptimizer, std::remove_cvref_t<decltype(optimizer)>>)
      optimizer.prepare();
  });
}

}  // namespace looptorch::detail
