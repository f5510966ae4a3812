// SPDX-License-Identifier: MIT
// Declares the interface of a graph of device work, such as a CUDA graph. Work that is issued to a stream
// between `begin` and `end` is recorded instead of run. `replay` then issues all of it by one launch, with
// the same memory addresses. CaptureGraphs uses it through this interface; graph/cuda_graph.hpp implements it
// for CUDA.
#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/Device.h>
#include <c10/core/DeviceType.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace looptorch::detail {

class DeviceGraph {
 public:
  DeviceGraph() = default;
  DeviceGraph(const DeviceGraph&) = delete;
  DeviceGraph& operator=(const DeviceGraph&) = delete;
  /// Frees the graph's memory, except that of tensors which are still held.
  virtual ~DeviceGraph() = default;

  /// Starts to record what is issued to this thread's current stream, which must not be the default one.
  /// Waits for the device.
  virtual void begin() = 0;
  /// Ends the recording. Throws the device's error if something was issued that cannot be recorded.
  virtual void end() = 0;
  /// Issues what was recorded to the current stream. Random numbers continue from the generator's state.
  virtual void replay() = 0;

  /// Returns a copy of the device's generator, from which this recording draws. Call it before `begin`.
  [[nodiscard]] virtual at::Generator copy_generator(at::Generator source) = 0;
  /// Returns the offset to which the recording has advanced that copy. A replay draws at these offsets from
  /// the state that the generator has then.
  [[nodiscard]] virtual std::uint64_t random_offset() const = 0;
  /// Makes the recording continue at this offset, for work that must draw the same numbers again.
  virtual void set_random_offset(std::uint64_t offset) = 0;
};

/// Makes an empty graph with memory from the pool of `neighbour`, or from a new pool if that is null. Graphs
/// of one pool must not run at the same time.
using DeviceGraphMaker = std::unique_ptr<DeviceGraph> (*)(c10::Device device, const DeviceGraph* neighbour);

/// Returns the maker for a type of device, by reference, to set it; null if such devices have no graphs.
[[nodiscard]] inline DeviceGraphMaker& device_graph_maker(c10::DeviceType type) {
  static std::array<DeviceGraphMaker, c10::COMPILE_TIME_MAX_DEVICE_TYPES> makers{};
  return makers[static_cast<std::size_t>(type)];
}

}  // namespace looptorch::detail
