// SPDX-License-Identifier: MIT
// Captures autocast's settings for a recomputed block. The settings belong to a thread, and backward may run
// the block on another thread. Autocast's cache of cast weights belongs to the process and to the graph that
// is being built, so recomputation neither uses nor clears it.
#pragma once

#include <looptorch/memory/ambient/device_generators.hpp>

#include <ATen/autocast_mode.h>
#include <c10/util/SmallVector.h>

namespace looptorch::detail {

/// The autocast settings of this thread at construction.
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

}  // namespace looptorch::detail
