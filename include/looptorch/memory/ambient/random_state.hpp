// SPDX-License-Identifier: MIT
// The default random generators of a block's devices: put back while it runs again, and afterwards as if it
// had not. A generator belongs to the process, not to a thread. Where another thread draws from it while a
// block runs for the first time, or one that draws runs again, it cannot be told whose numbers are whose;
// that is noticed at the next tensor that is recorded.
#pragma once

#include <looptorch/base/device/accelerator.hpp>
#include <looptorch/base/device/generator_state.hpp>
#include <looptorch/memory/ambient/generator_place.hpp>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Generator.h>
#include <c10/util/SmallVector.h>

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace looptorch::detail {

/// The devices of a block, the CPU among them.
class DeviceSet {
 public:
  void add(at::Device device) {
    for (const at::Device& known : devices_)
      if (known == device) return;
    devices_.push_back(device);
  }
  [[nodiscard]] auto begin() const { return devices_.begin(); }
  [[nodiscard]] auto end() const { return devices_.end(); }

 private:
  c10::SmallVector<at::Device, 2> devices_{at::Device(at::kCPU)};
};

/// Where some generators stand in their sequences.
using RandomPositions = c10::SmallVector<std::uint64_t, 2>;

/// The states of the default random generators of some devices.
class RandomState {
 public:
  RandomState() = default;
  explicit RandomState(const DeviceSet& devices) {
    for (const at::Device& device : devices) {
      if (!device.is_cpu() && !is_accelerator(device)) continue;
      const at::Generator& generator = default_generator(device);
      states_.push_back({generator, GeneratorPlace(generator)});
    }
  }

  /// Forgets the states that are equal in `after`, which is of the same devices: nothing was drawn.
  void forget_equal(const RandomState& after) {
    for (std::size_t i = 0; i < states_.size(); ++i)
      if (states_[i].place->same(*after.states_[i].place)) states_[i].place.reset();
  }

  /// Puts the generators to these states.
  void apply() const {
    for (const auto& [generator, place] : states_)
      if (place) place->restore();
  }

  /// Where the generators are now.
  [[nodiscard]] RandomPositions positions_now() const {
    RandomPositions positions;
    for (const OfDevice& of : states_) positions.push_back(position_of(of.generator));
    return positions;
  }

  /// Whether a block that began at these states and was at `then` can be where the generators are now.
  [[nodiscard]] bool can_be_now(const RandomPositions& then) const {
    for (std::size_t i = 0; i < then.size(); ++i) {
      if (!states_[i].place || !is_checked(i)) continue;
      if (position_of(states_[i].generator) != then[i]) return false;
    }
    return true;
  }

  /// Puts the generators to these states while it lives.
  class Scope;

 private:
  struct OfDevice {
    at::Generator generator;
    std::optional<GeneratorPlace> place;  ///< None where nothing was drawn.
  };

  /// Beside an accelerator the CPU's generator is not checked: there it is mostly the input pipeline's.
  [[nodiscard]] bool is_checked(std::size_t i) const { return i > 0 || states_.size() == 1; }

  static std::uint64_t position_of(at::Generator generator) {
    const std::lock_guard lock(generator.mutex());
    if (!generator.device().is_cpu()) return generator.get_offset();
    const at::mt19937_data_pod data = generator.get<at::CPUGeneratorImpl>()->engine().data();
    return (std::uint64_t{data.state_[0]} << 32) ^ (data.seed_ << 11) ^ data.next_;
  }

  std::vector<OfDevice> states_;
};

class RandomState::Scope {
 public:
  explicit Scope(const RandomState& then) {
    for (const auto& [generator, place] : then.states_)
      if (place) met_.emplace_back(generator);
    then.apply();  // what throws here is undone by `met_`
  }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  std::vector<GeneratorPlace::Scope> met_;
};

}  // namespace looptorch::detail
