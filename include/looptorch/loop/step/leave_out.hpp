// SPDX-License-Identifier: MIT
// Asks the policies whether a window is to be left out because of its losses. Compiled only where a policy
// has `on_window_loss`. Costs a copy of the model's buffers a window, and on a device a wait for the loss.
#pragma once

#include <looptorch/loop/compose/hooks.hpp>
#include <looptorch/loop/context.hpp>
#include <looptorch/loop/step/kept_buffers.hpp>
#include <looptorch/loop/step/non_finite.hpp>
#include <looptorch/loop/step/window_state.hpp>

#include <ATen/core/Tensor.h>

#include <cmath>
#include <cstddef>
#include <vector>

namespace looptorch::detail {

/// The model's buffers as the share of an update that may be left out began.
class ShareStart {
 public:
  /// Keeps the buffers, unless they are kept already.
  void begin(const std::vector<at::Tensor>& buffers) {
    if (!begun_) buffers_.keep(buffers);
    begun_ = true;
  }
  void put_back() {
    if (begun_) buffers_.put_back();
  }
  /// Forgets the share, which has been made or abandoned.
  void end() { begun_ = false; }

 private:
  bool begun_ = false;
  KeptBuffers buffers_;
};

/// Keeps what a window that is left out, or done again, must not change.
template <std::size_t I, class Engine>
void begin_share(Engine& engine) {
  if constexpr (Engine::kKeeps || Engine::kFindsScale)
    if (engine.keeps_windows() || engine.template seeks_scale<I>())
      engine.attempt().begin(engine.buffers(), engine.works()[I]);
  if constexpr (Engine::kMayLeaveOut)
    if (engine.window().may_retry) engine.share_start().begin(engine.buffers());
}

/// Returns the origin of what is known to be at fault in update I's share: a micro-batch, another rank's
/// window, or the whole window.
inline WindowOrigin origin_at_fault(const UpdateWork& work, const WindowOrigin& window) {
  if (work.at_fault) return window.narrowed(*work.at_fault);
  return work.fault_elsewhere ? window.elsewhere(*work.fault_elsewhere) : window;
}

/// True if a policy leaves the window out for update I. The model's buffers are then as before it.
template <std::size_t I, class Engine>
[[nodiscard]] bool is_left_out(Engine& engine) {
  if constexpr (Engine::kMayLeaveOut) {
    const UpdateWork& work = engine.works()[I];
    if (!engine.window().may_retry) return false;
    if (const at::Tensor empty = work.weight.unread_empty(); empty.defined() && empty.template item<bool>())
      return false;
    const double loss = work.losses.mean();
    const bool known = work.at_fault || work.fault_elsewhere;
    const WindowOrigin origin = origin_at_fault(work, engine.window().origin);
    WindowLossContext context(engine.run(), I, loss,
                              known || (engine.watches_losses() && !std::isfinite(loss)), origin.place(),
                              engine.share());
    engine.stack().template run<on_window_loss_hook>(context);
    if (context.is_left_out()) engine.share_start().put_back();
    return context.is_left_out();
  } else {
    return false;
  }
}

}  // namespace looptorch::detail
