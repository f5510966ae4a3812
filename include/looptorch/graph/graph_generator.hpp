// SPDX-License-Identifier: MIT
// The random numbers of a graph. A graph draws from the state that the device's generator had as it was
// captured, as an object; what puts a generator back, such as a layer that runs again, may have given it
// another one since.
#pragma once

#include <looptorch/base/device/generator_state.hpp>

#include <ATen/core/Generator.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <mutex>

namespace looptorch::detail {

/// A device's generator, and the state that a graph knows, which is one of its own: LibTorch does not let a
/// state be used again whose capture has failed.
class GraphGenerator {
 public:
  GraphGenerator() = default;
  /// Gives the generator a state for the capture that begins now. The device's generators must be able to
  /// exchange theirs.
  explicit GraphGenerator(c10::Device device)
      : generator_(default_generator(device)), known_(copy_of(generator_)) {
    const std::lock_guard lock(generator_.mutex());
    before_ = generator_.graphsafe_get_state();
    generator_.graphsafe_set_state(known_);
  }

  /// Gives the generator its state back, after a capture that came to nothing.
  void give_up() {
    const std::lock_guard lock(generator_.mutex());
    generator_.graphsafe_set_state(before_);
  }

  /// Lets the graph go on from where the generator is.
  void before_replay() {
    const std::lock_guard lock(generator_.mutex());
    const std::uint64_t seed = generator_.current_seed(), offset = generator_.get_offset();
    if (known_.current_seed() == seed && known_.get_offset() == offset) return;
    known_.set_current_seed(seed);
    known_.set_offset(offset);
  }
  /// Lets the generator go on from where the graph is.
  void after_replay() {
    const std::lock_guard lock(generator_.mutex());
    if (generator_.get_offset() != known_.get_offset()) generator_.graphsafe_set_state(known_);
  }

 private:
  at::Generator generator_, known_, before_;
};

}  // namespace looptorch::detail
