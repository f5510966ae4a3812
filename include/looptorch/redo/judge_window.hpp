// SPDX-License-Identifier: MIT
// Lets policies judge a window before its update. The hook `on_window_loss` may skip the window because of
// its losses. The hook `examine` runs once gradients are unscaled, and finds what is wrong with loss or
// gradients. On a device each hook costs a wait for the loss. make_update (loop/step/update_step.hpp) calls
// both.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/loop/compose/hooks.hpp>
#include <looptorch/loop/context.hpp>
#include <looptorch/loop/examine_context.hpp>
#include <looptorch/loop/step/non_finite.hpp>
#include <looptorch/loop/step/redo_state.hpp>
#include <looptorch/loop/step/window_state.hpp>

#include <ATen/core/Tensor.h>

#include <cmath>
#include <cstddef>
#include <string>

namespace looptorch::detail {

/// Decides for update I whether policies skip its window, and lets them examine it before the update.
template <std::size_t I, class Engine>
class WindowJudge {
 public:
  explicit WindowJudge(Engine& engine) : engine_(engine) {}

  /// True if a policy skips the window. The model's buffers then have their values from before the window.
  [[nodiscard]] bool skips() {
    if constexpr (RedoReasons<Engine>::kSkips) skipped_ = is_skipped_by_policy();
    return skipped_;
  }

  /// Lets policies examine the update. Their findings go into its error.
  void examine_window(const UpdateContext& update) {
    constexpr bool examines =
        RedoReasons<Engine>::kExamines && Engine::PolicyStack::template has<examine_hook>();
    if constexpr (examines)
      if (engine_.redo().rerun && !is_empty_on_device()) examine(update);
  }

  /// True while the first loss scale is sought: the next window must know whether this update was applied.
  [[nodiscard]] bool resolves_at_once() { return may_seek_scale<I>(engine_); }

 private:
  [[nodiscard]] UpdateWork& work() { return engine_.works()[I]; }

  /// True if the window's weight is 0 and lies on the device. Waits for the device.
  [[nodiscard]] bool is_empty_on_device() {
    const at::Tensor empty = work().weight.unread_empty();
    return empty.defined() && empty.template item<bool>();
  }

  [[nodiscard]] bool is_skipped_by_policy() {
    if (!engine_.window().may_redo || !judges_losses(engine_) || is_empty_on_device()) return false;
    const double loss = work().losses.mean();
    const LossFault& fault = work().fault;
    WindowLossContext context(engine_.run(), I, loss,
                              fault.is_known() || (engine_.watches_losses() && !std::isfinite(loss)),
                              fault.origin(engine_.window().origin).place(), engine_.redo().rerun);
    engine_.stack().template run<on_window_loss_hook>(context);
    if (context.is_skipped()) engine_.redo().window_start.skip(work());
    return context.is_skipped();
  }

  void examine(const UpdateContext& update) {
    ExamineContext context(engine_.run(), I, engine_.window().origin.place(), *engine_.redo().rerun);
    context.loss = work().losses.mean();
    context.loss_non_finite = work().fault.is_known() || !std::isfinite(context.loss);
    context.refused = update.refusal().read();
    context.skipped = skipped_;
    context.overflowed = !engine_.watches_losses() && !skipped_ && !context.refused && is_vetoed_now(update);
    engine_.stack().template run<examine_hook>(context);
    work().found = {.finding = context.finding(),
                    .explanation = context.explanation(),
                    .full_error = {},
                    .in_loss = context.loss_non_finite};
    engine_.ranks().template reduce_error<I>(engine_);
  }

  /// True if the update is vetoed; on a device waits for it.
  [[nodiscard]] static bool is_vetoed_now(const UpdateContext& update) {
    return update.vetoed() ||
           (update.found_inf().defined() && update.found_inf().template item<double>() != 0);
  }

  Engine& engine_;
  bool skipped_ = false;
};

}  // namespace looptorch::detail
