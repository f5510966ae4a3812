// SPDX-License-Identifier: MIT
// Holds the states of the process's default random generators as tensors, for snapshots: the CPU's, and that
// of every accelerator that the process uses. Generators that a program makes for itself are not included.
#pragma once

#include <looptorch/base/device/accelerator.hpp>
#include <looptorch/base/device/generator_state.hpp>
#include <looptorch/base/error.hpp>
#include <looptorch/base/random.hpp>
#include <looptorch/base/state_dict.hpp>

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace looptorch::detail {

/// Returns the CPU and the accelerators that this process has used; initialises none.
inline std::vector<at::Device> devices_with_generators() {
  std::vector<at::Device> devices{at::Device(at::kCPU)};
  for (const at::Device device : accelerators_in_use()) devices.push_back(device);
  return devices;
}

/// Generator states by their devices' names: "cpu", "cuda:0".
class RandomStates {
 public:
  [[nodiscard]] static RandomStates now() {
    RandomStates states;
    for (const at::Device device : devices_with_generators())
      states.states_.emplace_back(device.str(), state_of(default_generator(device)));
    return states;
  }

  void save(StateDict& out) const {
    for (const auto& [device, state] : states_) out.set(device, state);
  }
  [[nodiscard]] static RandomStates loaded(const StateDict& in) {
    RandomStates states;
    for (const auto& [device, value] : in.values())
      states.states_.emplace_back(device, in.get<at::Tensor>(device));
    return states;
  }

  /// Drops each state that no generator here can take, and returns a sentence for each.
  std::vector<std::string> drop_unfit() {
    std::vector<std::string> sentences;
    std::erase_if(states_, [&](const auto& item) {
      std::string why = find_misfit(item.first, item.second);
      if (why.empty()) return false;
      sentences.push_back(std::move(why));
      return true;
    });
    return sentences;
  }

  /// Assigns the accelerator states that rank 0 saved to this rank's accelerators: a single one to `device`,
  /// on which the rank trains, several to as many in use here, in order. Call it before `drop_unfit`.
  void move_to(at::Device device) {
    std::vector<std::string*> saved;
    for (auto& [name, state] : states_)
      if (name != "cpu") saved.push_back(&name);
    auto own = accelerators_in_use();
    if (saved.size() == 1 && !device.is_cpu()) own = {device};
    for (std::size_t i = 0; i < own.size() && own.size() == saved.size(); ++i) *saved[i] = own[i].str();
  }

  /// Turns the states that rank 0 saved into those of rank `rank`, by seeds drawn from both. Otherwise all
  /// resumed ranks would draw the same numbers.
  void derive(std::int64_t rank) {
    for (auto& [device, state] : states_) {
      const at::Tensor bytes = state.contiguous().view(at::kByte);
      std::uint64_t seed = 0;
      for (const std::uint8_t byte : std::span(bytes.const_data_ptr<std::uint8_t>(), bytes.nbytes()))
        seed = derive_seed(seed, byte);
      at::Generator generator = copy_of(default_generator(at::Device(device)));
      generator.set_current_seed(derive_seed(seed, static_cast<std::uint64_t>(rank)));
      state = generator.get_state();
    }
  }

  void apply() const {
    for (const auto& [device, state] : states_) set_state(default_generator(at::Device(device)), state);
  }

 private:
  static std::string find_misfit(const std::string& device, const at::Tensor& state) {
    if (!is_here(device)) return message("random numbers: drawn on ", device, ", which is not here");
    const at::Generator& generator = default_generator(at::Device(device));
    const at::Tensor own = state_of(generator);
    if (state.scalar_type() == own.scalar_type() && state.sizes() == own.sizes())
      return refusal(generator, state);
    return message("random numbers: the state of ", device, "'s generator is ", state.sizes(), " ",
                   state.scalar_type(), " in the snapshot, ", own.sizes(), " ", own.scalar_type(), " here");
  }

  /// Returns why the generator refuses a state; empty if it takes it. Tries it on a copy of the generator,
  /// since only setting a state checks it.
  static std::string refusal(const at::Generator& generator, const at::Tensor& state) {
    try {
      copy_of(generator).set_state(state);
      return {};
    } catch (const c10::Error& error) {
      return message("random numbers: ", generator.device(),
                     "'s generator cannot take its state: ", error.what_without_backtrace());
    }
  }

  static bool is_here(const std::string& device) {
    if (device == "cpu") return true;
    const auto type = accelerator_here();
    for (at::DeviceIndex i = 0; type && i < at::accelerator::deviceCount(); ++i)
      if (device == at::Device(*type, i).str()) return true;
    return false;
  }

  std::vector<std::pair<std::string, at::Tensor>> states_;
};

}  // namespace looptorch::detail
