// SPDX-License-Identifier: MIT
// Makes updates by optimizers that evaluate the loss several times within one step, such as LBFGS. For each
// set of parameters that such an optimizer tries, it calls a closure, which runs over the window's kept
// batches again.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/loop/context.hpp>
#include <looptorch/loop/step/micro_batch.hpp>
#include <looptorch/loop/step/non_finite.hpp>
#include <looptorch/loop/step/redo_state.hpp>
#include <looptorch/loop/step/update_step.hpp>
#include <looptorch/objective/loss.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <torch/optim/optimizer.h>

#include <cmath>
#include <cstddef>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

namespace torch::optim {
class LBFGS;
struct LBFGSParamState;
}  // namespace torch::optim

namespace looptorch::detail {

/// Returns the error for a loss that is not finite when a closure evaluates it again.
[[nodiscard]] inline NonFiniteLoss non_finite_in_closure(const UpdateView& view, const WindowOrigin& origin) {
  return origin.error<NonFiniteLoss>(
      "evaluated again by its optimizer, the loss of " + view.name + " is",
      "Lower the learning rate, or let the optimizer search along its direction (line_search_fn)");
}

/// Throws UsageError if a policy has changed the window's factor on the gradients.
inline void require_unscaled(const UpdateContext& context, const GradientScale& given) {
  const GradientScale& now = context.pending();
  const bool multiplied_in = now.is_one();  // by a policy that asked for the gradients
  if (!multiplied_in && (now.number() != given.number() || !now.tensor().is_same(given.tensor())))
    throw UsageError(message("a policy scales the gradients of ", context.view().name,
                             ", whose optimizer evaluates them again by a closure and would not see that"));
}

/// The state class of LBFGS, which is only declared here.
template <class Optimizer>
struct LbfgsStateOf {
  using type = torch::optim::LBFGSParamState;
};

/// An optimizer's state as it was before a step: LBFGS's history. Shares the history's tensors, which a step
/// replaces but does not change, so it costs the memory of one gradient and of the pairs that the step drops.
/// Other optimizers' states are not known, and are dropped.
template <class Optimizer>
class StateBeforeStep {
 public:
  explicit StateBeforeStep(Optimizer& optimizer) : optimizer_(optimizer) {
    if constexpr (std::is_base_of_v<torch::optim::LBFGS, Optimizer>)
      for (const auto& [parameter, state] : optimizer.state()) {
        auto copy = state->clone();
        at::Tensor& gradient = static_cast<typename LbfgsStateOf<Optimizer>::type&>(*copy).prev_flat_grad();
        if (gradient.defined()) gradient = gradient.clone();  // a step writes into it
        states_.emplace_back(parameter, std::move(copy));
      }
  }

  void restore() {
    optimizer_.state().clear();
    for (auto& [parameter, state] : states_) optimizer_.state()[parameter] = std::move(state);
  }

 private:
  Optimizer& optimizer_;
  std::vector<std::pair<void*, std::unique_ptr<torch::optim::OptimizerParamState>>> states_;
};

/// Steps by a closure; returns whether the update was applied. The window's gradients and its mean `loss`
/// serve the closure's first call, unless a parameter has moved by then; `evaluate` recomputes both. If it
/// throws, restores the parameters and LBFGS's history; another optimizer loses its whole state.
template <class Optimizer, class Evaluate>
bool step_by_closure(Optimizer& optimizer, UpdateContext& context, const at::Tensor& loss,
                     Evaluate&& evaluate) {
  const at::Tensor& found = context.found_inf();
  if (context.vetoed() || (found.defined() && found.item<bool>())) return false;
  (void)context.gradients();  // divides them by the window's weight: the closure's first call uses them
  TensorCopies tried(context.view().parameters);
  StateBeforeStep state(optimizer);
  bool first = true;
  try {
    optimizer.step([&]() -> at::Tensor {
      at::AutoGradMode with_gradients(true);
      return std::exchange(first, false) && tried.are_as_before() ? loss : evaluate();
    });
  } catch (...) {
    tried.restore();
    state.restore();
    throw;
  }
  return true;
}

/// The observer of a later evaluation within one update: the means already have its losses.
template <std::size_t I, class Engine>
class ReevaluationObserver : public TrainingObserver<I, Engine> {
 public:
  using TrainingObserver<I, Engine>::TrainingObserver;

  /// Throws NonFiniteLoss.
  [[nodiscard]] bool accept(const Loss& loss) {
    if (is_known_non_finite(this->engine_, loss))
      throw non_finite_in_closure(this->engine_.run().updates()[I],
                                  this->engine_.window().origin.narrowed(this->number_));
    return true;
  }
};

/// Computes the gradients of the window's kept batches at the current parameters; returns their mean loss.
/// Throws NonFiniteLoss, and UsageError if nothing has weight this time.
template <std::size_t I, class Engine, class Batch>
at::Tensor evaluate_again(Engine& engine, const std::vector<Batch>& kept) {
  const UpdateView& view = engine.run().updates()[I];
  UpdateWork& work = engine.works()[I];
  drop_gradients(view.parameters);
  work.weight.next_window();
  for (std::size_t number = 0; number < kept.size(); ++number)
    run_micro_batch<I>(engine, kept[number],
                       ReevaluationObserver<I, Engine>(engine, number, /*is_last=*/false));
  const at::Tensor sum = std::exchange(work.closure_sum, {});
  if (!sum.defined())
    throw UsageError(
        message("the objective of ", view.name,
                " gave a window weight at first, and none when its optimizer evaluated it again"));
  GradientScale scale = window_scale<I>(engine);
  const at::Tensor loss = scale.apply(sum);
  if (engine.watches_losses() && !std::isfinite(loss.item<double>()))
    throw non_finite_in_closure(view, engine.window().origin);
  std::vector<at::Tensor> gradients;
  collect_gradients(view.parameters, gradients);
  scale.flush(gradients);
  return loss;
}

/// Updates the parameters by an optimizer that evaluates the loss of the kept batches repeatedly.
template <std::size_t I, class Engine, class Batch>
class MoveByClosure {
 public:
  MoveByClosure(Engine& engine, const std::vector<Batch>& kept) : engine_(engine), kept_(kept) {}

  template <class Optimizer>
  std::optional<bool> operator()(Optimizer& optimizer, UpdateContext& context,
                                 const GradientScale& scale) const {
    if (context.vetoed()) return false;
    require_unscaled(context, scale);
    const at::Tensor loss = scale.apply(std::exchange(engine_.works()[I].closure_sum, {}));
    return step_by_closure(optimizer, context, loss, [&] { return evaluate_again<I>(engine_, kept_); });
  }

 private:
  Engine& engine_;
  const std::vector<Batch>& kept_;
};

}  // namespace looptorch::detail
