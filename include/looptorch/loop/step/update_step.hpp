// SPDX-License-Identifier: MIT
// Ends a window for one update: policies see the gradients, the optimizer changes the parameters, and the
// update is counted. If possible, the optimizer's kernel also multiplies the gradients by the pending factor,
// such as clipping's, and obeys a veto that is still on the device.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/tensors/for_each_index.hpp>
#include <looptorch/base/text/type_name.hpp>
#include <looptorch/loop/compose/hooks.hpp>
#include <looptorch/loop/compose/policy_stack.hpp>
#include <looptorch/loop/context.hpp>
#include <looptorch/loop/step/engine.hpp>
#include <looptorch/loop/step/in_backward.hpp>
#include <looptorch/loop/step/micro_batch.hpp>
#include <looptorch/loop/step/non_finite.hpp>
#include <looptorch/loop/step/resolve_updates.hpp>
#include <looptorch/loop/update.hpp>
#include <looptorch/optim/gradients/gradients.hpp>
#include <looptorch/optim/interface/any_optimizer.hpp>

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <functional>
#include <optional>
#include <type_traits>
#include <utility>

namespace looptorch::detail {

/// Steps an optimizer whose type does not show that it needs a closure. Throws UsageError if it calls one.
template <class Optimizer>
void step_without_closure(Optimizer& optimizer) {
  try {
    optimizer.step();
  } catch (const std::bad_function_call&) {
    throw UsageError(
        message("the step of ", type_name<Optimizer>(),
                " calls a closure, and was given none: hold the optimizer by its own type, and declare its "
                "step(LossClosure closure) without a default argument"));
  }
}

/// Returns whether the update was applied; empty if only the device knows.
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
    step_without_closure(optimizer);
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

/// Lets each optimizer compile its kernels as a fit begins, so that no step does: parameters may have moved
/// to their device after it was made.
template <class Engine>
void prepare_optimizers(Engine& engine) {
  for_each_index<Engine::kUpdates>([&](auto i) {
    auto& optimizer = *engine.template update<i>().optimizer;
    if constexpr (std::is_base_of_v<AnyOptimizer, std::remove_cvref_t<decltype(optimizer)>>)
      optimizer.prepare();
  });
}

/// Requests whether an update was applied; `applied` is empty if only the device knows.
inline void request_update(UpdateWork& work, const UpdateContext& context, std::optional<bool> applied) {
  const Progress& now = context.run.progress();
  applied ? work.verdict.await_update(*applied ? 0.0 : 1.0, now)
          : work.verdict.await_update(context.found_inf(), now);
}

/// Requests whether the losses and gradients of a window were finite, unless it was skipped.
inline void request_non_finite(UpdateWork& work, const UpdateContext& context, const at::Tensor& non_finite,
                               const WindowOrigin& window) {
  if (work.found.finding) {
    const WindowOrigin origin = work.found.origin(work.fault, window);
    work.fault.micro_batch || work.found.in_loss ? work.verdict.await_losses({.known = true}, origin)
                                                 : work.verdict.await_gradients({.known = true}, origin);
    return;
  }
  if (work.fault.is_known())
    work.verdict.await_losses({.known = true}, work.fault.origin(window));
  else if (non_finite.defined())
    work.verdict.await_losses({.non_finite = non_finite}, window);
  if (context.refusal().is_possible()) work.verdict.await_gradients(context.refusal(), window);
}

/// Judges no window: makes all updates.
struct NoJudge {
  [[nodiscard]] static constexpr bool skips() { return false; }
  static constexpr void examine_window(const UpdateContext&) {}
  [[nodiscard]] static constexpr bool resolves_at_once() { return false; }
};

/// The end of a window as a graph; defined in graph/graphed_end.hpp, which headers of policies with graphs
/// include.
template <std::size_t I, class Engine>
class GraphedEnd;

/// The end of windows that run no graphs.
struct NoGraphedEnd {
  static at::Tensor non_finite() { return {}; }
  static constexpr bool adds_losses() { return false; }
  static std::optional<bool> launch_optimizer() { return {}; }
};

/// Returns the end of update I's window, which a graph has run up to the optimizer's kernels; null if it must
/// be run eagerly.
template <std::size_t I, class Engine>
auto graphed_end([[maybe_unused]] Engine& engine, [[maybe_unused]] UpdateContext& context) {
  if constexpr (Engine::PolicyStack::template has<graphs_hook>()) {
    std::optional<GraphedEnd<I, Engine>> end;
    if (MicroBatchGraphs* const graphs = engine.graphs()) end.emplace(engine, *graphs, context);
    if (end && !end->run()) end.reset();
    return end;
  } else {
    return std::optional<NoGraphedEnd>();
  }
}

/// Vetoes by flags that only the device knows, then runs before_update. Returns `unread_non_finite`'s result.
template <std::size_t I, class Engine>
[[nodiscard]] at::Tensor run_before_update(Engine& engine, UpdateContext& context) {
  const UpdateWork& work = engine.works()[I];
  if (const at::Tensor empty = work.weight.unread_empty(); empty.defined()) context.veto(empty);
  at::Tensor non_finite = unread_non_finite(engine, work);
  if (non_finite.defined()) context.veto(non_finite);
  if (applies_in_backward(engine))
    finish_backward<I>(engine, context);
  else
    engine.ranks().template before_update<I>(engine, context);
  return non_finite;
}

/// Makes update I: applies known vetoes, runs before_update, then calls `move(optimizer, context, scale)`,
/// which returns whether it moved the parameters, or nothing if only the device knows. `judge` may skip the
/// window, and examines it before the update is made.
template <std::size_t I, class Engine, class Move, class Judge>
void make_update(Engine& engine, Move&& move, Judge&& judge) {
  UpdateView& view = engine.run().updates()[I];
  UpdateWork& work = engine.works()[I];
  const GradientScale scale = window_scale<I>(engine);
  UpdateContext context(engine.run(), I, scale, work.gradients);
  UpdateAccess::collect_metrics(context, work.losses.metrics());

  const bool skipped = judge.skips();
  context.veto(work.fault.is_known() || skipped);
  auto graphed = graphed_end<I>(engine, context);
  const at::Tensor non_finite = graphed ? graphed->non_finite() : run_before_update<I>(engine, context);
  judge.examine_window(context);

  const std::optional<bool> applied =
      graphed ? graphed->launch_optimizer() : engine.ranks().template move<I>(engine, context, scale, move);
  work.gradients.clear();
  drop_gradients(view.parameters);

  request_update(work, context, applied);
  if (!skipped) request_non_finite(work, context, non_finite, engine.window().origin);
  if (applied.value_or(true))
    work.losses.add_to(view, applied ? at::Tensor() : context.found_inf(), graphed && graphed->adds_losses());
  if (resolves_at_once(engine) || judge.resolves_at_once()) resolve_update<I>(engine, engine.window().thrown);
}

/// Ends the window for update I: counts earlier updates, then makes this one, or skips it if nothing has
/// weight.
template <std::size_t I, class Engine, class Move, class Judge = NoJudge>
void finish_update(Engine& engine, Move&& move, Judge&& judge = {}) {
  UpdateWork& work = engine.works()[I];
  engine.window().derived.drop();
  resolve_updates(engine);
  if (work.weight.is_empty() && !work.fault.is_known())
    keep_first(engine.window().thrown,
               resolve_outcome<I>(engine, /*applied=*/false, Progress(engine.progress())));
  else
    make_update<I>(engine, std::forward<Move>(move), std::forward<Judge>(judge));
  work.begin_next_window();
}

}  // namespace looptorch::detail
