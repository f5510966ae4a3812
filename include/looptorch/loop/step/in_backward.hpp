// SPDX-License-Identifier: MIT
// Serves policies that update parameters during backward (UpdateInBackward). Calls their hooks before each
// backward and at the window's end. Calls `before_update` of all policies before the window's last backward,
// since no gradients are left after it.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/loop/compose/declared_members.hpp>
#include <looptorch/loop/compose/hooks.hpp>
#include <looptorch/loop/context.hpp>
#include <looptorch/loop/step/engine.hpp>
#include <looptorch/loop/step/resolve_updates.hpp>
#include <looptorch/optim/gradients/gradients.hpp>

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <utility>

namespace looptorch::detail {

/// True if a policy that is switched on updates parameters during backward.
template <class Engine>
bool applies_in_backward(Engine& engine) {
  return engine.stack().any_enabled([]<class P>() { return updates_in_backward<P>(); });
}

/// Prepares an update that is applied during backward: reads the outcomes of earlier updates, then calls
/// `before_update` without gradients, so that schedules can set their rates. Stores the factor by which hooks
/// scale the gradients. Throws UsageError if a policy vetoes the update.
template <std::size_t I, class Engine>
void prepare_update_in_backward(Engine& engine) {
  UpdateWork& work = engine.works()[I];
  resolve_updates(engine);
  UpdateContext context(engine.run(), I, GradientScale{}, work.gradients);
  engine.stack().template run<before_update_hook>(context);
  work.gradients.clear();
  if (context.vetoed() || context.found_inf().defined())
    throw UsageError(
        "a policy vetoes an update (UpdateContext::veto) that UpdateInBackward applies during backward: "
        "switch off one of the two");
  work.backward_factor = context.pending();
}

/// Notifies policies before a backward of update I.
template <std::size_t I, class Engine>
void announce_backward(Engine& engine, double correction, GradientScale scale, at::Tensor found_inf) {
  UpdateWork& work = engine.works()[I];
  const WindowState& window = engine.window();
  const bool last = window.micro_batches + window.skipped_batches + 1 >= engine.window_length();
  if (last) prepare_update_in_backward<I>(engine);
  BackwardContext context{.run = engine.run(),
                          .index = I,
                          .number = work.backwards++,
                          .length = engine.window_length(),
                          .last = last,
                          .correction = correction,
                          .scale = std::move(scale),
                          .factor = work.backward_factor.value_or(GradientScale{}),
                          .total = work.weight.total_so_far(),
                          .found_inf = std::move(found_inf)};
  engine.stack().template run<before_backward_hook>(context);
}

/// Lets policies finish update I of a complete window, or drop what they hold of it.
template <std::size_t I, class Engine>
void finish_backward(Engine& engine, UpdateContext& update) {
  UpdateWork& work = engine.works()[I];
  const WindowState& window = engine.window();
  if (!update.vetoed() && !work.backward_factor) prepare_update_in_backward<I>(engine);
  BackwardContext context{.run = engine.run(),
                          .index = I,
                          .number = work.backwards,
                          .length = window.micro_batches + window.skipped_batches,
                          .last = true,
                          .vetoed = update.vetoed(),
                          .scale = update.pending(),
                          .factor = work.backward_factor.value_or(GradientScale{}),
                          .total = work.weight.total_so_far(),
                          .found_inf = update.found_inf()};
  engine.stack().template run<finish_backward_hook>(context);
  if (work.backward_factor) update.scale_gradients(*work.backward_factor);  // for parameters without a hook
}

}  // namespace looptorch::detail
