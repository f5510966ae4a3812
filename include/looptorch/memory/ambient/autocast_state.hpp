// SPDX-License-Identifier: MIT
// Autocast as a block met it. It is a thread's own, and backward may run on another one. Not so the copies of
// weights that it caches: they are the process's, and belong to the graph that is being built. A block that
// runs again neither uses them nor clears them.
#pragma once

#include <looptorch/memory/ambient/random_state.hpp>

#include <ATen/autocast_mode.h>
#include <c10/util/SmallVector.h>

namespace looptorch::detail {

/// Autocast as it stood on this thread.
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

  /// The thread's autocast is as it was then while it lives.
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
  Scope(const AutocastState& state, const DeviceSet& devices) : met_(devices) {
    state.apply();
    at::autocast::set_autocast_cache_enabled(false);
    at::autocast::increment_nesting();  // so that a scope that ends within the block clears nothing
  }
  ~Scope() {
    at::autocast::decrement_nesting();
    at::autocast::set_autocast_cache_enabled(cached_);
    met_.apply();
  }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  AutocastState met_;
  bool cached_ = at::autocast::is_autocast_cache_enabled();
};

}  // namespace looptorch::detail
