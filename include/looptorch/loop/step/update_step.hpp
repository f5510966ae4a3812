// SPDX-License-Identifier: MIT
// One update in one window: its micro-batches are differentiated one after another; at the window's end
// policies see the gradients, the optimizer moves the parameters, and the update is counted.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/loop/compose/hooks.hpp>
#include <looptorch/loop/context.hpp>
#include <looptorch/loop/loss.hpp>
#include <looptorch/loop/step/agree_on_finding.hpp>
#include <looptorch/loop/step/agree_on_window.hpp>
#include <looptorch/loop/step/engine.hpp>
#include <looptorch/loop/step/examine.hpp>
#include <looptorch/loop/step/in_backward.hpp>
#include <looptorch/loop/step/leave_out.hpp>
#include <looptorch/loop/step/non_finite.hpp>
#include <looptorch/loop/step/settle.hpp>
#include <looptorch/loop/step/shared_update.hpp>
#include <looptorch/loop/update.hpp>
#include <looptorch/optim/finite_gradients.hpp>
#include <looptorch/optim/gradients.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/ops/logical_or.h>

#include <cmath>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

namespace looptorch::detail {

/// Multiplies the gradients of the window's earlier micro-batches by `factor`, a power of two. Needed when
/// the unit that weights are counted in has grown.
inline void rescale_gradients(const UpdateView& view, UpdateWork& work, double factor) {
  if (factor == 1) return;
  GradientScale scale;
  scale.multiply(factor);
  collect_gradients(view.parameters, work.gradients);
  scale.flush(work.gradients);
  work.gradients.clear();
}

/// Throws UsageError for a loss without a graph.
inline void require_graph(const at::Tensor& loss, const UpdateView& view) {
  if (!loss.requires_grad())
    throw UsageError(
        message("the loss of ", view.name,
                " does not depend on any parameter that its optimizer "
                "trains; is the optimizer made from this model's parameters, and are any of them unfrozen?"));
}

/// True for a loss on the CPU that is NaN or infinite. Losses on a device are checked at the window's end.
template <class Engine>
bool is_known_non_finite(Engine& engine, const Loss& loss) {
  const at::Tensor& value = loss_tensor(loss);
  return engine.watches_losses() && value.is_cpu() && !std::isfinite(cpu_number(value));
}

/// Returns the error of a closure whose later evaluation is not finite.
[[nodiscard]] inline NonFiniteLoss non_finite_again(const UpdateView& view, const WindowOrigin& origin) {
  return origin.error<NonFiniteLoss>(
      "evaluated again by its optimizer, the loss of " + view.name + " is",
      "Lower the learning rate, or let the optimizer search along its direction (line_search_fn)");
}

/// True if the window is one micro-batch in one piece, on one process, which needs no weighing.
template <class Engine>
[[nodiscard]] bool is_alone(Engine& engine, const UpdateWork& work) {
  return engine.window_length() == 1 && work.pieces == 1 && !engine.ranks();
}

/// Reads a weight that is on a device, which ranks have to add up. Waits for the device.
inline void read_weight(Loss& loss) {
  if (!loss.weight.is_known()) loss.weight = loss.weight.tensor().item<double>();
}

/// Returns the factor that turns the sum of what was differentiated, and its gradients, into the window's
/// mean and gradients.
template <std::size_t I, class Engine>
[[nodiscard]] GradientScale window_scale(Engine& engine) {
  const UpdateWork& work = engine.works()[I];
  return is_alone(engine, work) ? GradientScale{} : work.weight.scale();
}

/// Returns a 0-dim tensor that is not zero if a loss of the window, all of which lie on a device, is NaN or
/// infinite: then their sum is, too. Undefined on a CPU.
template <class Engine>
at::Tensor unread_non_finite(Engine& engine, const UpdateWork& work) {
  const at::Tensor& sum = work.losses.device_sum();
  if (!engine.watches_losses() || !sum.defined() || sum.is_cpu() || sum.is_meta()) return {};
  return is_non_finite(sum);
}

/// Returns a 0-dim tensor that is not zero if the window's losses so far are not finite, or have no weight;
/// undefined where that is known.
template <class Engine>
at::Tensor unread_veto(Engine& engine, const UpdateWork& work) {
  const at::Tensor non_finite = unread_non_finite(engine, work), empty = work.weight.unread_empty();
  if (!non_finite.defined() || !empty.defined()) return non_finite.defined() ? non_finite : empty;
  return at::logical_or(non_finite, beside(non_finite, empty));
}

/// Differentiates a micro-batch's weighed loss for update I; `is_last` as for `differentiate`.
template <std::size_t I, class Engine>
void go_backward(Engine& engine, const at::Tensor& weighed, bool is_last) {
  UpdateWork& work = engine.works()[I];
  const at::Tensor scaled = engine.stack().scaled(weighed);
  if (LayerWatch* const watch = engine.layer_watch()) watch->check(scaled);
  const double correction = work.weight.take_correction();
  rescale_gradients(engine.run().updates()[I], work, correction);
  if constexpr (Engine::template kByClosure<I>) work.add_to_closure_sum(weighed, correction);
  if (applies_in_backward(engine))
    announce_backward<I>(engine, correction, window_scale<I>(engine), unread_veto(engine, work));
  if (engine.ranks() && is_last && !engine.template seeks_scale<I>()) expect_sums<I>(engine);
  scaled.backward();
}

/// Notes whether update I's gradients overflow, and whether the loss itself did, in a window that can be done
/// again with another loss scale. Waits for the device.
template <std::size_t I, class Engine>
void note_overflow(Engine& engine, const Loss& loss) {
  UpdateWork& work = engine.works()[I];
  collect_gradients(engine.run().updates()[I].parameters, work.gradients);
  if (any_non_finite(work.gradients)) {
    work.overflowed = true;
    work.loss_overflowed |= !std::isfinite(loss_tensor(loss).template item<double>());
  }
  work.gradients.clear();
}

/// Adds a micro-batch to update I: forward, loss, backward. `number` counts the window's micro-batches;
/// `is_last` if it is known that no other one follows. With `reevaluates`, for closures, the micro-batch is
/// in the means already. Throws NonFiniteLoss only then.
template <std::size_t I, class Engine, class Batch>
void differentiate(Engine& engine, const Batch& batch, std::size_t number, bool reevaluates = false,
                   bool is_last = false) {
  UpdateView& view = engine.run().updates()[I];
  UpdateWork& work = engine.works()[I];
  if (work.at_fault) return;  // the update is not made, whatever else the window holds
  begin_share<I>(engine);
  FrozenScope frozen(engine.parameters().outside(I));
  Loss loss = engine.in_phase(
      RunPhase::forward, "forward",
      [&] {
        return as_loss(engine.forward(engine.template update<I>().objective, batch, /*training=*/true));
      },
      I);
  if (engine.ranks()) read_weight(loss);
  const at::Tensor weighed = is_alone(engine, work) ? work.weight.weigh_alone(loss) : work.weight.weigh(loss);
  if (!weighed.defined()) return;  // nothing is to be learnt from it
  if (is_known_non_finite(engine, loss)) {
    if (reevaluates) throw non_finite_again(view, engine.window().origin.narrowed(number));
    work.at_fault = number;
    if (MetricSink* const sink = engine.run().sink()) sink->take(I, "loss", cpu_number(loss_tensor(loss)));
    return;
  }
  if (!reevaluates) work.losses.add(loss);
  require_graph(weighed, view);
  engine.in_phase(
      RunPhase::backward, "backward", [&] { go_backward<I>(engine, weighed, is_last); }, I);
  if constexpr (Engine::kFindsScale)
    if (engine.template seeks_scale<I>()) note_overflow<I>(engine, loss);
}

/// Differentiates all of the window's kept batches.
template <std::size_t I, class Engine, class Batch>
void differentiate_all(Engine& engine, const std::vector<Batch>& kept, bool reevaluates = false) {
  for (std::size_t number = 0; number < kept.size(); ++number)
    differentiate<I>(engine, kept[number], number, reevaluates, /*is_last=*/number + 1 == kept.size());
}

/// Requests whether an update was made; `made` is empty where only the device knows.
inline void request_update(UpdateWork& work, const UpdateContext& context, std::optional<bool> made) {
  const Progress& now = context.run.progress();
  made ? work.verdict.await_update(*made ? 0.0 : 1.0, now)
       : work.verdict.await_update(context.found_inf(), now);
}

/// Requests whether the losses and gradients of a window that no policy left out were finite.
inline void request_trouble(UpdateWork& work, const UpdateContext& context, const at::Tensor& non_finite,
                            const WindowOrigin& window) {
  if (work.finding) {
    const WindowOrigin origin = origin_of_finding(work, window);
    work.at_fault || work.found_in_loss ? work.verdict.await_losses(1.0, origin)
                                        : work.verdict.await_gradients(1.0, origin);
    return;
  }
  if (work.at_fault)
    work.verdict.await_losses(1.0, window.narrowed(*work.at_fault));
  else if (work.fault_elsewhere)
    work.verdict.await_losses(1.0, window.elsewhere(*work.fault_elsewhere));
  else if (non_finite.defined())
    work.verdict.await_losses(non_finite, window);
  if (context.unread_refused().defined())
    work.verdict.await_gradients(context.unread_refused(), window);
  else if (context.refused())
    work.verdict.await_gradients(1.0, window);
}

/// Makes update I: applies known vetoes, runs the policies' before_update, then calls `move(optimizer,
/// context, scale)`. `move` returns whether it moved the parameters, or nothing where only the device knows.
template <std::size_t I, class Engine, class Move>
void make_update(Engine& engine, Move&& move) {
  UpdateView& view = engine.run().updates()[I];
  UpdateWork& work = engine.works()[I];
  const GradientScale scale = window_scale<I>(engine);
  UpdateContext context(engine.run(), I, scale, work.gradients);
  const bool left_out = is_left_out<I>(engine);
  context.veto(work.at_fault || work.fault_elsewhere || left_out);
  if (const at::Tensor empty = work.weight.unread_empty(); empty.defined()) context.veto(empty);
  const at::Tensor non_finite = unread_non_finite(engine, work);
  if (non_finite.defined()) context.veto(non_finite);
  if (applies_in_backward(engine)) {
    finish_backward<I>(engine, context);
  } else {
    show_gradients<I>(engine, context);
    ask_before_update(engine, context);
    agree_on_veto(engine, context);
  }
  if constexpr (Engine::kExamines) examine<I>(engine, context, left_out);
  const std::optional<bool> made = move_parameters<I>(engine, context, scale, move);
  work.gradients.clear();
  drop_gradients(view.parameters);
  request_update(work, context, made);
  if (!left_out) request_trouble(work, context, non_finite, engine.window().origin);
  if (made.value_or(true)) work.losses.add_to(view, made ? at::Tensor() : context.found_inf());
  if (settles_at_once(engine) || engine.template seeks_scale<I>())
    settle_update<I>(engine, engine.window().thrown);
}

/// Ends the window for update I: counts earlier updates, then makes this one, or skips it if nothing has
/// weight.
template <std::size_t I, class Engine, class Move>
void finish_update(Engine& engine, Move&& move) {
  UpdateWork& work = engine.works()[I];
  settle(engine);
  if (work.weight.is_empty() && !work.at_fault && !work.fault_elsewhere)
    keep_first(engine.window().thrown, conclude<I>(engine, /*made=*/false, Progress(engine.progress())));
  else
    make_update<I>(engine, std::forward<Move>(move));
  work.begin_next_window();
  if constexpr (Engine::kMayLeaveOut) engine.share_start().end();
  if constexpr (Engine::kAttempts && !Engine::kRetries) engine.attempt().end();
}

}  // namespace looptorch::detail
