// SPDX-License-Identifier: MIT
// Saves the default random generators of a checkpointed block's devices before its first run, and restores
// them for its second. If another thread draws from a generator meanwhile, the block may get other numbers;
// recomputation then throws, since the generators end at other positions than in the first run. In a block on
// an accelerator the CPU's generator is not checked, since input pipelines usually draw from it.
#pragma once

#include <looptorch/base/device/accelerator.hpp>
#include <looptorch/base/device/capture_scope.hpp>
#include <looptorch/base/device/generator_state.hpp>
#include <looptorch/base/device/saved_generator.hpp>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Generator.h>
#include <c10/util/SmallVector.h>

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

namespace looptorch::detail {

/// The devices of a block, which always include the CPU.
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

/// The positions of some generators in their sequences.
using RandomPositions = c10::SmallVector<std::uint64_t, 2>;

/// The saved states of some devices' default random generators.
class DeviceGenerators {
 public:
  DeviceGenerators() = default;
  explicit DeviceGenerators(const DeviceSet& devices) {
    for (const at::Device& device : devices) {
      if (!device.is_cpu() && !is_accelerator(device)) continue;
      const at::Generator& generator = default_generator(device);
      generators_.push_back({generator, SavedGenerator(generator)});
    }
  }

  /// Drops the states that equal those of `after` (same devices): their generators drew nothing in between.
  void forget_equal(const DeviceGenerators& after) {
    for (std::size_t i = 0; i < generators_.size(); ++i)
      if (generators_[i].captured && generators_[i].captured->same(*after.generators_[i].captured))
        generators_[i].captured.reset();
  }

  /// Restores the generators to these states.
  void apply() const {
    for (const auto& [generator, captured] : generators_)
      if (captured) captured->restore();
  }

  /// Returns the current positions of the generators.
  [[nodiscard]] RandomPositions positions_now() const {
    RandomPositions positions;
    for (const OfDevice& each : generators_) positions.push_back(position_of(each.generator));
    return positions;
  }

  /// True if the generators are at positions `then` again; compares only those that the block drew from.
  [[nodiscard]] bool can_be_now(const RandomPositions& then) const {
    for (std::size_t i = 0; i < then.size(); ++i) {
      if (!generators_[i].captured || !is_checked(i)) continue;
      if (position_of(generators_[i].generator) != then[i]) return false;
    }
    return true;
  }

  /// Restores the generators to these states while it lives.
  class Scope;

 private:
  struct OfDevice {
    at::Generator generator;
    std::optional<SavedGenerator> captured;  ///< Empty if nothing was drawn.
  };

  /// Returns false for the CPU's generator if the block has an accelerator, where the input pipeline usually
  /// draws from it.
  [[nodiscard]] bool is_checked(std::size_t i) const { return i > 0 || generators_.size() == 1; }

  static std::uint64_t position_of(at::Generator generator) {
    if (const DeviceGraph* const graph = CaptureScope::graph_on(generator.device()))
      return graph->random_offset();
    const std::lock_guard lock(generator.mutex());
    if (!generator.device().is_cpu()) return (generator.current_seed() << 32) ^ generator.get_offset();
    const at::mt19937_data_pod data = generator.get<at::CPUGeneratorImpl>()->engine().data();
    return (std::uint64_t{data.state_[0]} << 32) ^ (data.seed_ << 11) ^ data.next_;
  }

  std::vector<OfDevice> generators_;
};

class DeviceGenerators::Scope {
 public:
  explicit Scope(const DeviceGenerators& then) {
    for (const auto& [generator, captured] : then.generators_)
      if (captured) restored_later_.emplace_back(generator);
    then.apply();  // `restored_later_` undoes it, also after a throw
  }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  std::vector<SavedGenerator::Scope> restored_later_;
};

}  // namespace looptorch::detail
