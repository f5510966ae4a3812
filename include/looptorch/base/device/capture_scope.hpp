// SPDX-License-Identifier: MIT
// Tells whether this process is capturing a CUDA graph. A capture forbids copies to the host and reading a
// device's random generator, so code that does either asks `CaptureScope` first. A recomputed layer, for
// example, then saves the offset of the graph's random numbers instead of the generator's state.
#pragma once

#include <looptorch/base/device/device_graph.hpp>

#include <c10/core/Device.h>

#include <atomic>

namespace looptorch::detail {

/// The current capture; a process has one at most.
class CaptureScope {
 public:
  /// `graph` records on `device`.
  CaptureScope(c10::Device device, DeviceGraph& graph) : device_(device), graph_(graph) { current() = this; }
  ~CaptureScope() { current() = nullptr; }
  CaptureScope(const CaptureScope&) = delete;
  CaptureScope& operator=(const CaptureScope&) = delete;

  [[nodiscard]] static bool is_open() { return current() != nullptr; }
  /// Returns the graph that records on a device; null if none does.
  [[nodiscard]] static DeviceGraph* graph_on(c10::Device device) {
    const CaptureScope* const scope = current();
    return scope && scope->device_ == device ? &scope->graph_ : nullptr;
  }

 private:
  static std::atomic<const CaptureScope*>& current() {  // backward runs in LibTorch's threads
    static std::atomic<const CaptureScope*> current = nullptr;
    return current;
  }

  c10::Device device_;
  DeviceGraph& graph_;
};

}  // namespace looptorch::detail
