// SPDX-License-Identifier: MIT
// Recognises optimizers that evaluate the loss several times in one step, such as LBFGS. Rejects policies
// that scale or clip gradients, since these would reach only the first evaluation.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/text/type_name.hpp>
#include <looptorch/loop/compose/declared_members.hpp>
#include <looptorch/loop/compose/hooks.hpp>
#include <looptorch/loop/compose/rules.hpp>
#include <looptorch/loop/update.hpp>

#include <c10/util/Type.h>

#include <tuple>
#include <type_traits>
#include <typeinfo>

namespace looptorch {

/// An optimizer whose `step` needs a closure that returns the loss, such as torch::optim::LBFGS.
template <class T>
concept ClosureOptimizer = OptimizerLike<T> && !FoldingOptimizer<T> &&
                           requires(T & optimizer, torch::optim::Optimizer::LossClosure closure) {
  optimizer.step(closure);
}
&&!requires(T & optimizer) { optimizer.step(); };

namespace detail {

template <class Part>
inline constexpr bool steps_by_closure = false;
template <class Optimizer, class Objective>
inline constexpr bool steps_by_closure<Update<Optimizer, Objective>> = ClosureOptimizer<Optimizer>;

template <class Updates>
inline constexpr bool any_by_closure = false;
template <class... Each>
inline constexpr bool any_by_closure<std::tuple<Each...>> = (steps_by_closure<Each> || ...);

/// True for a policy whose effect on the gradients would reach only the first evaluation of an update.
template <class P>
constexpr bool acts_on_gradients() {
  if constexpr (declares_changes_gradients<P>())
    return P::changes_gradients;
  else
    return loss_scale_hook::valid<P>();
}

/// Throws PolicyConflict if a policy that is on changes gradients and an optimizer uses a closure.
template <class Stack>
void require_no_gradient_changes(Stack& stack) {
  stack.each([](auto& slot) {
    using P = typename std::remove_reference_t<decltype(slot)>::Policy;
    if constexpr (acts_on_gradients<P>())
      if (slot.enabled())
        throw PolicyConflict(message(
            "an optimizer that takes a closure, such as LBFGS, evaluates its gradients several times an "
            "update, and ",
            type_name<P>(), " scales or clips them once: switch it off, or train with another optimizer"));
  });
}

/// Throws UsageError for an LBFGS held by its base class, whose `step` does not show that it needs a closure.
inline void require_no_hidden_closure(const torch::optim::Optimizer& optimizer) {
  if (c10::demangle(typeid(optimizer).name()) == "torch::optim::LBFGS")
    throw UsageError(
        "an update holds an LBFGS as torch::optim::Optimizer, by which the Trainer cannot see that its step needs "
        "a closure: hold it as torch::optim::LBFGS");
}

}  // namespace detail
}  // namespace looptorch
