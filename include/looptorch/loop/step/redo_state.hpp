// SPDX-License-Identifier: MIT
// What an engine keeps so that windows can be done again, and which of its policies want that. Engines whose
// policies never do have none of this.
#pragma once

#include <looptorch/loop/compose/hooks.hpp>
#include <looptorch/loop/examine_context.hpp>
#include <looptorch/loop/step/window_checkpoint.hpp>

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <vector>

namespace looptorch::detail {

/// True if a listed policy may have a window done again, look into it, or leave it out.
template <class Stack>
inline constexpr bool kMayRedo =
    Stack::template has<pieces_hook>() || Stack::template has<keeps_windows_hook>() ||
    Stack::template has<on_overflow_hook>() || Stack::template has<on_window_loss_hook>();

/// The policies of an engine that want windows done again, by what they want.
template <class Engine>
struct Redoes {
  using Stack = typename Engine::PolicyStack;
  static constexpr bool kSplits = Stack::template has<pieces_hook>();        ///< out of memory, in pieces
  static constexpr bool kLooks = Stack::template has<keeps_windows_hook>();  ///< for a second look
  static constexpr bool kSeeksScale = Stack::template has<on_overflow_hook>();
  static constexpr bool kLeavesOut = Stack::template has<on_window_loss_hook>();
};

class RedoState {
 public:
  /// Asks the policies that are switched on whether they keep windows, as a fit begins.
  template <class Stack>
  void prepare(Stack& stack) {
    keeps_windows_ = false;
    stack.template each_with<keeps_windows_hook>(
        [&](auto& slot) { keeps_windows_ |= keeps_windows_hook::call(slot.policy, slot.state); });
  }
  [[nodiscard]] bool keeps_windows() const { return keeps_windows_; }

  /// Returns the model's buffers. They are listed anew in the first shares of a fit, in which a forward may
  /// register some: each listing walks through all modules.
  template <class Module>
  [[nodiscard]] const std::vector<at::Tensor>& buffers_of(const Module& model) {
    constexpr int kListings = 16;
    if (listings_ < kListings) buffers_ = model.buffers(), ++listings_;
    return buffers_;
  }
  void list_buffers_anew() { listings_ = 0; }

  WindowCheckpoint checkpoint;  ///< of the share under way
  ShareAgain* share = nullptr;  ///< what policies may look into; null where windows are not kept

 private:
  bool keeps_windows_ = false;
  std::vector<at::Tensor> buffers_;
  int listings_ = 0;
};

/// True if a policy that is switched on keeps the window under way.
template <class Engine>
[[nodiscard]] bool keeps_windows(Engine& engine) {
  return Redoes<Engine>::kLooks && engine.redo().keeps_windows() && engine.window().may_retry;
}

/// True while update I was never made, if a policy then has windows done again whose gradients overflow.
template <std::size_t I, class Engine>
[[nodiscard]] bool seeks_scale(Engine& engine) {
  if constexpr (Redoes<Engine>::kSeeksScale && !Engine::template kByClosure<I>)
    return !engine.watches_losses() && engine.window().may_retry && engine.run().updates()[I].applied == 0;
  else
    return false;
}

}  // namespace looptorch::detail
