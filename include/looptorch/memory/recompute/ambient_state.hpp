// SPDX-License-Identifier: MIT
// Captures all that a checkpointed block reads besides its arguments: random generators, autocast, the
// current device and streams, and its module's modes, buffers and parameters. The state is captured when the
// block first runs, and is restored while it runs again.
#pragma once

#include <looptorch/memory/ambient/device_generators.hpp>
#include <looptorch/memory/ambient/streams.hpp>
#include <looptorch/memory/recompute/captured_module.hpp>

#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/SmallVector.h>

#include <string_view>
#include <utility>

namespace looptorch::detail {

/// The autocast settings of this thread at construction: backward may run the block on another one.
/// Autocast's cache of cast weights belongs to the process and to the graph that is being built, so
/// recomputation neither uses nor clears it.
class AutocastState {
 public:
  explicit AutocastState(const DeviceSet& devices) {
    for (const at::Device& device : devices) {
      const at::DeviceType type = device.type();
      if (!at::autocast::is_autocast_available(type)) continue;
      types_.push_back(
          {type, at::autocast::is_autocast_enabled(type), at::autocast::get_autocast_dtype(type)});
    }
  }

  /// Applies the captured settings to this thread while it lives.
  class Scope;

 private:
  struct OfDevice {
    at::DeviceType device;
    bool enabled;
    at::ScalarType type;
  };

  void apply() const {
    for (const OfDevice& of : types_) {
      at::autocast::set_autocast_enabled(of.device, of.enabled);
      at::autocast::set_autocast_dtype(of.device, of.type);
    }
  }

  c10::SmallVector<OfDevice, 2> types_;
};

class AutocastState::Scope {
 public:
  Scope(const AutocastState& state, const DeviceSet& devices) : previous_(devices) {
    state.apply();
    at::autocast::set_autocast_cache_enabled(false);
    at::autocast::increment_nesting();  // so that a scope that ends within the block does not clear the cache
  }
  ~Scope() {
    at::autocast::decrement_nesting();
    at::autocast::set_autocast_cache_enabled(cached_);
    previous_.apply();
  }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  AutocastState previous_;
  bool cached_ = at::autocast::is_autocast_cache_enabled();
};

/// Everything that a block reads besides its arguments.
class AmbientState {
 public:
  AmbientState(DeviceSet devices, bool with_random, CapturedModule module)
      : devices_(std::move(devices)),
        random_(with_random ? DeviceGenerators(devices_) : DeviceGenerators()),
        with_random_(with_random),
        autocast_(devices_),
        streams_(devices_),
        module_(std::move(module)) {}

  /// Returns the current states of the generators that the block may use.
  [[nodiscard]] DeviceGenerators random_now() const {
    return with_random_ ? DeviceGenerators(devices_) : DeviceGenerators();
  }
  /// Returns their states when the block began.
  [[nodiscard]] const DeviceGenerators& random() const { return random_; }

  /// Ends the first run: drops the states that the block did not use. Throws CheckpointError if the block has
  /// written to a parameter.
  void finish_first_run(std::string_view block) {
    module_.check_parameters(block, " is written to in place by its forward");
    random_.forget_equal(random_now());
    module_.forget_unchanged();
  }

  /// Restores the captured state while it lives, with gradients enabled. Throws CheckpointError if a
  /// parameter has changed since.
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
    CapturedModule::Scope module_;
    DeviceGenerators::Scope random_;
    AutocastState::Scope autocast_;
  };

 private:
  DeviceSet devices_;
  DeviceGenerators random_;
  bool with_random_;
  AutocastState autocast_;
  StreamState streams_;
  CapturedModule module_;
};

}  // namespace looptorch::detail
