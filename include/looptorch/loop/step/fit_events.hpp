// SPDX-License-Identifier: MIT
// Calls the hooks on_fit_begin, on_fit_ready, on_window_end and on_fit_end, and does the loop's own work at
// these moments. For example, at a window's end it adapts the loss scale, and throws what `after_update`
// hooks threw during the window. Fits, loops of `step`, preflights and replays call these functions.
#pragma once

#include <looptorch/loop/compose/hooks.hpp>
#include <looptorch/loop/context.hpp>
#include <looptorch/loop/fit.hpp>
#include <looptorch/loop/run.hpp>
#include <looptorch/loop/run_phase.hpp>
#include <looptorch/loop/step/fit_checks.hpp>
#include <looptorch/loop/step/resolve_updates.hpp>
#include <looptorch/loop/step/update_step.hpp>

#include <exception>

namespace looptorch::detail {

/// Sets the length of the fit in a prepared engine, before policies begin.
template <class Engine>
void announce(Engine& engine, const FitPlan& plan) {
  plan.announce(RunAccess::progress(engine.run()));
  RunAccess::forget_stop(engine.run());
}

/// Forgets the losses and metrics so far, as an epoch or a loop of `step` begins.
inline void restart_means(Run& run) {
  for (UpdateView& view : run.updates()) {
    view.loss.reset();
    view.metrics.clear();
  }
}

/// Prepares the engine for a loop of `step`, before policies begin.
template <class Engine>
void prepare_fit(Engine& engine, const FitPlan& plan) {
  engine.prepare();
  announce(engine, plan);
}

/// Runs on_fit_begin, or on_switched_off of policies that are off.
template <class Engine>
void begin_policies(Engine& engine) {
  warn_once_of_eval_mode(engine);
  FitContext context{engine.run()};
  engine.stack().run_switched_off(context);
  engine.stack().template run<on_fit_begin_hook>(context);
}

/// Runs on_fit_ready: all policies have begun, and Run can evaluate.
template <class Engine>
void ready_policies(Engine& engine) {
  refuse_lossy_weights(engine);
  warn_once_of_untrained(engine);
  prepare_optimizers(engine);
  FitContext context{engine.run()};
  engine.stack().template run<on_fit_ready_hook>(context);
}

/// Adapts the loss scale, and runs on_window_end. Then throws what update hooks threw, or a known error of
/// the losses.
template <class Engine>
void close_window(Engine& engine) {
  engine.in_phase(RunPhase::update, "window end", [&] {
    engine.with_loss_scale([](auto& scale) { scale.adapt(); });
    WindowContext context{engine.run(), engine.window().previous_micro_batches};
    engine.stack().template run<on_window_end_hook>(context);
  });
  rethrow_from_hooks(engine);
  throw_known_errors(engine);
}

/// Runs every policy's on_fit_end even if others throw. Then throws the first exception.
template <class Engine>
void end_policies(Engine& engine, FitStatus status, bool began_beyond = false) {
  FitContext context{engine.run(), status, began_beyond};
  if (auto thrown = engine.stack().template run_all<on_fit_end_hook>(context)) std::rethrow_exception(thrown);
}

}  // namespace looptorch::detail
