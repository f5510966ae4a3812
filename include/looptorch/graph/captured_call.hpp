// SPDX-License-Identifier: MIT
// Captures a function's work on a device as a graph, which replays by one launch. Use it for work of fixed
// shapes without gradients, such as decoding a token. For training use CaptureGraphs.
#pragma once

#include <looptorch/base/device/device_graph.hpp>
#include <looptorch/base/error.hpp>
#include <looptorch/base/out_of_memory.hpp>
#include <looptorch/base/what_of.hpp>
#include <looptorch/graph/capture_graph.hpp>
#include <looptorch/graph/cuda_graph.hpp>

#include <ATen/core/grad_mode.h>
#include <c10/core/Device.h>

#include <exception>
#include <memory>

namespace looptorch {

/// A function's work on a device as a graph. A replay reads and writes the memory that the function read and
/// wrote when it was recorded: keep this memory alive, copy new inputs into it, and read its results before
/// another call that shares it is replayed.
///
/// The function must have run before, so that libraries are loaded. It must not wait for the device, draw
/// random numbers, or depend on anything on the host that changes.
class CapturedCall {
 public:
  /// True if devices of this type have graphs.
  [[nodiscard]] static bool is_supported(c10::Device device) {
    return detail::device_graph_maker(device.type()) != nullptr;
  }

  /// Records `call` without gradients; nothing runs yet. Shares temporary memory with `neighbour`, if there
  /// is one. Throws UsageError if the device has no graphs, or if something in `call` cannot be recorded;
  /// c10::OutOfMemoryError if memory runs out.
  template <class Call>
  CapturedCall(c10::Device device, const Call& call, const CapturedCall* neighbour = nullptr) {
    if (!is_supported(device)) throw UsageError(message("CapturedCall: ", device, " has no graphs"));
    device = detail::with_index(device);
    graph_ = detail::device_graph_maker(device.type())(device, neighbour ? neighbour->graph_.get() : nullptr);
    const at::NoGradGuard no_gradients;
    try {
      detail::capture_without_draws(*graph_, device, call);
    } catch (...) {
      if (ran_out_of_memory()) throw;
      throw UsageError(message("CapturedCall: this cannot be captured as a graph: ",
                               detail::first_line(detail::what_of(std::current_exception()))));
    }
  }

  /// Issues the recorded work to the current stream.
  void replay() { graph_->replay(); }

 private:
  std::unique_ptr<detail::DeviceGraph> graph_;
};

}  // namespace looptorch
