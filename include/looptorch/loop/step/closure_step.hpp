// SPDX-License-Identifier: MIT
// Updates by optimizers that evaluate the loss again and again within one step, such as LBFGS: the window's
// batches are kept, and the optimizer's closure goes over them at the parameters that it tries.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/type_name.hpp>
#include <looptorch/loop/compose/hooks.hpp>
#include <looptorch/loop/compose/rules.hpp>
#include <looptorch/loop/context.hpp>
#include <looptorch/loop/phase.hpp>
#include <looptorch/loop/update.hpp>

#include <ATen/core/grad_mode.h>
#include <c10/util/Type.h>

#include <cstddef>
#include <tuple>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

namespace looptorch {

/// An optimizer whose `step` cannot do without a closure that returns the loss, such as torch::optim::LBFGS.
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

/// A policy whose effect on the gradients would hold for the first evaluation of an update only.
template <class P>
constexpr bool changes_gradients() {
  if constexpr (requires { bool(P::changes_gradients); })
    return P::changes_gradients;
  else
    return scale_loss_hook::valid<P>();
}

/// Throws PolicyConflict where a policy that is switched on changes gradients, beside an update by closure.
template <class Stack>
void require_no_gradient_changes(Stack& stack) {
  stack.each([](auto& slot) {
    using P = typename std::remove_reference_t<decltype(slot)>::Policy;
    if constexpr (changes_gradients<P>())
      if (slot.enabled())
        throw PolicyConflict(message(
            "an optimizer that takes a closure, such as LBFGS, evaluates its gradients several times an "
            "update, and ",
            type_name<P>(), " scales or clips them once: switch it off, or train with another optimizer"));
  });
}

/// Throws UsageError if a policy has changed the factor that the window gave the gradients.
inline void require_unscaled(const UpdateContext& context, const GradientScale& given) {
  const GradientScale& now = context.pending();
  const bool multiplied_in = now.is_one();  // by a policy that asked for the gradients
  if (!multiplied_in && (now.number() != given.number() || !now.tensor().is_same(given.tensor())))
    throw UsageError(message("a policy scales the gradients of ", context.view().name,
                             ", whose optimizer evaluates them again by a closure and would not see that"));
}

/// Throws UsageError for an LBFGS that is held by its base class, whose `step` does not show what it needs.
inline void require_no_hidden_closure(const torch::optim::Optimizer& optimizer) {
  if (c10::demangle(typeid(optimizer).name()) == "torch::optim::LBFGS")
    throw UsageError(
        "an update holds an LBFGS as torch::optim::Optimizer, by which the Trainer cannot see that its step needs "
        "a closure: hold it as torch::optim::LBFGS");
}

/// Parameters, with copies of them as they were before an optimizer tried others.
class TriedParameters {
 public:
  explicit TriedParameters(const std::vector<at::Tensor>& parameters) : parameters_(parameters) {
    for (const at::Tensor& parameter : parameters_) before_.push_back(parameter.detach().clone());
  }

  [[nodiscard]] bool are_as_before() const {
    for (std::size_t i = 0; i < before_.size(); ++i)
      if (!parameters_[i].detach().equal(before_[i])) return false;
    return true;
  }
  void put_back() {
    at::NoGradGuard no_gradients;
    for (std::size_t i = 0; i < before_.size(); ++i) parameters_[i].copy_(before_[i]);
  }

 private:
  std::vector<at::Tensor> parameters_, before_;
};

/// Steps by a closure; returns whether the update was made. The window's gradients and its mean `loss` serve
/// the closure's first call, unless a parameter has moved by then; `again` makes both anew. What `again`
/// throws leaves the parameters as they were, and an optimizer without the state of a step that it did not
/// finish.
template <class Optimizer, class Again>
bool step_by_closure(Optimizer& optimizer, UpdateContext& context, const at::Tensor& loss, Again&& again) {
  const at::Tensor& found = context.found_inf();
  if (context.vetoed() || (found.defined() && found.item<bool>())) return false;
  (void)context.gradients();
  TriedParameters tried(context.view().parameters);
  bool first = true;
  try {
    optimizer.step([&]() -> at::Tensor {
      at::AutoGradMode with_gradients(true);
      return std::exchange(first, false) && tried.are_as_before() ? loss : again();
    });
  } catch (...) {
    tried.put_back();
    optimizer.state().clear();
    throw;
  }
  return true;
}

}  // namespace detail
}  // namespace looptorch
