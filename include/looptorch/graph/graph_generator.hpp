// SPDX-License-Identifier: MIT
// Gives each replay of a graph new random numbers. A graph always draws from the generator state of its
// capture. Other code, such as a recomputing layer, may have given the generator another state meanwhile. So
// before a replay the graph's state gets the generator's position, and after the replay the generator gets
// the position of the graph's state.
#pragma once

#include <looptorch/base/device/device_graph.hpp>
#include <looptorch/base/device/generator_state.hpp>

#include <ATen/core/Generator.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <mutex>

namespace looptorch::detail {

/// A device's generator, and a separate state for the graph: LibTorch does not reuse a state whose capture
/// has failed.
class GraphGenerator {
 public:
  GraphGenerator() = default;
  /// Gives the generator a state for the capture of `graph`, which begins now. The device's generators must
  /// support exchanging states.
  GraphGenerator(c10::Device device, DeviceGraph& graph)
      : generator_(default_generator(device)), known_(graph.copy_generator(generator_)) {
    const std::lock_guard lock(generator_.mutex());
    before_ = generator_.graphsafe_get_state();
    generator_.graphsafe_set_state(known_);
  }

  /// Restores the generator's state after a failed capture.
  void give_up() {
    const std::lock_guard lock(generator_.mutex());
    generator_.graphsafe_set_state(before_);
  }

  /// Sets the graph's state to the generator's position.
  void before_replay() {
    const std::lock_guard lock(generator_.mutex());
    const std::uint64_t seed = generator_.current_seed(), offset = generator_.get_offset();
    if (known_.current_seed() == seed && known_.get_offset() == offset) return;
    known_.set_current_seed(seed);
    known_.set_offset(offset);
  }
  /// Sets the generator to the graph's position.
  void after_replay() {
    const std::lock_guard lock(generator_.mutex());
    if (generator_.get_offset() != known_.get_offset()) generator_.graphsafe_set_state(known_);
  }

 private:
  at::Generator generator_, known_, before_;
};

}  // namespace looptorch::detail
