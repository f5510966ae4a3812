// SPDX-License-Identifier: MIT
// Captures a function's work on a device as a graph, which replays by one launch. Use it for work of fixed
// shapes without gradients, such as decoding a token. For training use CaptureGraphs.
#pragma once

#include <looptorch/base/device/accelerator.hpp>
#include <looptorch/base/device/capture_scope.hpp>
#include <looptorch/base/device/device_graph.hpp>
#include <looptorch/base/error.hpp>
#include <looptorch/base/out_of_memory.hpp>
#include <looptorch/base/what_of.hpp>
#include <looptorch/graph/cuda_graph.hpp>
#include <looptorch/graph/graph_generator.hpp>
#include <looptorch/graph/host_copy_watch.hpp>
#include <looptorch/memory/ambient/streams.hpp>
#include <looptorch/memory/empty_cache.hpp>

#include <ATen/core/grad_mode.h>
#include <c10/core/Device.h>
#include <c10/core/Stream.h>
#include <c10/core/StreamGuard.h>
#include <c10/util/ScopeExit.h>

#include <exception>
#include <memory>

namespace looptorch {
namespace detail {

/// Returns the stream on which all graphs of a device are recorded. LibTorch's allocator gives freed memory
/// only to the stream that it was allocated on: on another stream each graph of a pool would take memory of
/// its own. cuBLAS keeps a workspace for each stream.
[[nodiscard]] inline c10::Stream capture_stream(c10::Device device) {
  static StreamOfEachDevice streams;
  return streams.of(device);
}

/// Records what `body` issues, beside the current stream. `draws` is false if that draws no random numbers.
template <class Body>
void capture_graph(DeviceGraph& graph, c10::Device device, bool draws, const Body& body) {
  // While LibTorch records, it neither uses nor releases the blocks that eager work has left.
  (void)empty_cache(device);
  const c10::Stream current = stream_of(device), recorded = capture_stream(with_index(device));
  // LibTorch sets a graph's seed on the recorded stream as recording begins, and on the current one before
  // each replay. The seed's memory may be that of a graph whose last replay is not over.
  order(current, recorded);
  const auto ordered = c10::make_scope_exit([&] { ignoring_errors([&] { order(recorded, current); }); });
  const c10::StreamGuard beside(recorded);
  const CaptureScope capturing_here(draws);
  const HostCopyWatch copies;
  graph.begin();
  try {
    body();
    copies.check();
  } catch (...) {
    ignoring_errors([&] { graph.end(); });  // the first error is the one to know
    throw;
  }
  graph.end();
}

/// Records what `body` issues, which draws no random numbers, and leaves the device's generator as it was.
template <class Body>
void capture_without_draws(DeviceGraph& graph, c10::Device device, const Body& body) {
  GraphGenerator generator(device);
  const auto restored = c10::make_scope_exit([&] { generator.give_up(); });
  capture_graph(graph, device, /*draws=*/false, body);
}

}  // namespace detail

/// A function's work on a device as a graph. A replay reads and writes the memory that the function read and
/// wrote when it was recorded: keep that alive, copy new inputs into it, and read the results from it before
/// another call that shares this one's memory is replayed.
///
/// The function must have run before, so that libraries are loaded. It must not wait for the device, draw
/// random numbers, or depend on anything on the host that changes.
class CapturedCall {
 public:
  /// True if devices of this type have graphs.
  [[nodiscard]] static bool is_supported(c10::Device device) {
    return detail::device_graph_maker(device.type()) != nullptr;
  }

  /// Records `call`, of which nothing runs yet, without gradients. Takes temporary memory from that of
  /// `neighbour`, if there is one. Throws UsageError if the device has no graphs, or if something in `call`
  /// cannot be recorded; c10::OutOfMemoryError if memory runs out.
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
