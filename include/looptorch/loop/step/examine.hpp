// SPDX-License-Identifier: MIT
// Shows policies that look into windows each update before it is made, with what is known of its loss and its
// gradients. Compiled only where a policy has `examine`. On a device a wait for the loss.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/loop/compose/hooks.hpp>
#include <looptorch/loop/context.hpp>
#include <looptorch/loop/examine_context.hpp>
#include <looptorch/loop/step/agree_on_finding.hpp>
#include <looptorch/loop/step/non_finite.hpp>
#include <looptorch/loop/step/window_state.hpp>

#include <ATen/core/Tensor.h>

#include <cmath>
#include <cstddef>
#include <string>

namespace looptorch::detail {

/// True if only the device, or no number at all, says what the update's share weighs: nothing was learnt.
inline bool is_empty_on_device(const UpdateWork& work) {
  const at::Tensor empty = work.weight.unread_empty();
  return empty.defined() && empty.template item<bool>();
}

/// True if an update is vetoed, on a device after a wait for it.
inline bool is_vetoed_now(const UpdateContext& context) {
  return context.vetoed() || (context.found_inf().defined() && context.found_inf().item<double>() != 0);
}

/// Returns the moment of an exchange about update I's window.
template <class Engine>
[[nodiscard]] std::string moment_of_look(const Engine& engine, std::size_t update, const char* what) {
  return message("step ", engine.progress().step, " (", what, " of update ", update + 1, ")");
}

/// Shows update I to the policies. What they find out goes into the update's error.
template <std::size_t I, class Engine>
void examine(Engine& engine, const UpdateContext& update, bool left_out) {
  UpdateWork& work = engine.works()[I];
  if (!engine.share() || is_empty_on_device(work)) return;
  ExamineContext context(engine.run(), I, engine.window().origin.place(), *engine.share());
  const bool known = work.at_fault || work.fault_elsewhere;
  context.loss = work.losses.mean();
  context.loss_non_finite = known || !std::isfinite(context.loss);
  context.refused =
      update.refused() || (update.unread_refused().defined() && update.unread_refused().item<bool>());
  context.left_out = left_out;
  context.overflowed = !engine.watches_losses() && !left_out && !context.refused && is_vetoed_now(update);
  engine.stack().template run<examine_hook>(context);
  work.finding = context.finding();
  work.explanation = context.explanation();
  work.found_in_loss = context.loss_non_finite;
  if constexpr (Engine::kHasRanks)
    if (engine.ranks() && work.finding)
      agree_on_error(*engine.ranks(), engine.run().updates()[I].name, work, engine.window().origin,
                     moment_of_look(engine, I, "the error"));
}

}  // namespace looptorch::detail
