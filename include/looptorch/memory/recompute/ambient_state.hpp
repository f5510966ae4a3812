// SPDX-License-Identifier: MIT
// What a block reads besides its arguments: random generators, autocast, the current device and streams, its
// module's modes, buffers and parameters. Captured when it runs, put back while it runs again, and afterwards
// as if it had not.
#pragma once

#include <looptorch/memory/ambient/autocast_state.hpp>
#include <looptorch/memory/ambient/random_state.hpp>
#include <looptorch/memory/ambient/streams.hpp>
#include <looptorch/memory/recompute/module_modes.hpp>

#include <ATen/core/grad_mode.h>

#include <string_view>
#include <utility>

namespace looptorch::detail {

/// All that a block reads besides its arguments.
class AmbientState {
 public:
  AmbientState(DeviceSet devices, bool with_random, ModuleState module)
      : devices_(std::move(devices)),
        random_(with_random ? RandomState(devices_) : RandomState()),
        with_random_(with_random),
        autocast_(devices_),
        streams_(devices_),
        module_(std::move(module)) {}

  /// The states of the generators that the block may use, as they are now.
  [[nodiscard]] RandomState random_now() const {
    return with_random_ ? RandomState(devices_) : RandomState();
  }
  /// As they were when the block began.
  [[nodiscard]] const RandomState& random() const { return random_; }

  /// Call when the block has run: keeps what it used. Throws CheckpointError if it has written to a
  /// parameter.
  void settle(std::string_view block) {
    module_.check_parameters(block, " is written to in place by its forward");
    random_.forget_equal(random_now());
    module_.forget_unchanged();
  }

  /// Everything is as it was then, with gradients, while it lives. Throws CheckpointError where a parameter
  /// has been changed since.
  class Scope {
   public:
    Scope(const AmbientState& state, std::string_view block)
        : streams_((check(state, block), state.streams_)),
          module_(state.module_),
          random_(state.random_),
          autocast_(state.autocast_, state.devices_) {}

   private:
    static void check(const AmbientState& state, std::string_view block) {
      state.module_.check_parameters(block, " has been changed in place since the forward pass");
      state.module_.check_buffers(block);
    }

    at::AutoGradMode with_gradients_{true};
    StreamState::Scope streams_;
    ModuleState::Scope module_;
    RandomState::Scope random_;
    AutocastState::Scope autocast_;
  };

 private:
  DeviceSet devices_;
  RandomState random_;
  bool with_random_;
  AutocastState autocast_;
  StreamState streams_;
  ModuleState module_;
};

}  // namespace looptorch::detail
