// SPDX-License-Identifier: MIT
// Records as a graph (base/device/device_graph.hpp) the work that a function issues to a device. Used to
// capture micro-batches, the ends of windows, and functions of the user (captured_call.hpp).
#pragma once

#include <looptorch/base/device/accelerator.hpp>
#include <looptorch/base/device/capture_scope.hpp>
#include <looptorch/base/device/device_graph.hpp>
#include <looptorch/base/what_of.hpp>
#include <looptorch/graph/graph_generator.hpp>
#include <looptorch/graph/host_copy_watch.hpp>
#include <looptorch/memory/ambient/streams.hpp>
#include <looptorch/memory/empty_cache.hpp>

#include <c10/core/Device.h>
#include <c10/core/Stream.h>
#include <c10/core/StreamGuard.h>
#include <c10/util/ScopeExit.h>

namespace looptorch::detail {

/// Returns the stream on which all graphs of a device are recorded. LibTorch's allocator gives freed memory
/// only to the stream that it was allocated on: on another stream each graph of a pool would take memory of
/// its own. cuBLAS keeps a workspace for each stream.
[[nodiscard]] inline c10::Stream capture_stream(c10::Device device) {
  static StreamOfEachDevice streams;
  return streams.of(device);
}

/// Records what `body` issues on `capture_stream`, here the current one. Needs a GraphGenerator of `graph`.
template <class Body>
void capture_graph(DeviceGraph& graph, c10::Device device, const Body& body) {
  // While LibTorch records, it neither uses nor releases the blocks that eager work has left.
  (void)empty_cache(device);
  const c10::Stream current = stream_of(device), recorded = capture_stream(with_index(device));
  // LibTorch sets a graph's seed on the recorded stream as recording begins, and on the current one before
  // each replay. The seed's memory may be that of a graph whose last replay is not over.
  order(current, recorded);
  const auto ordered = c10::make_scope_exit([&] { ignoring_errors([&] { order(recorded, current); }); });
  const c10::StreamGuard beside(recorded);
  const CaptureScope capturing_here(with_index(device), graph);
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
  GraphGenerator generator(device, graph);
  const auto restored = c10::make_scope_exit([&] { generator.give_up(); });
  capture_graph(graph, device, body);
}

}  // namespace looptorch::detail
