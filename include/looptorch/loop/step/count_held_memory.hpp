// SPDX-License-Identifier: MIT
// Adds up the bytes of all that a run holds, for `Trainer::held_memory` and `expected_memory`.
#pragma once

#include <looptorch/base/device/accelerator.hpp>
#include <looptorch/base/tensors/for_each_index.hpp>
#include <looptorch/loop/compose/policy_stack.hpp>
#include <looptorch/loop/compose/policy_states.hpp>
#include <looptorch/memory/held_memory.hpp>
#include <looptorch/memory/measure/host_memory.hpp>
#include <looptorch/optim/state/optimizer_shards.hpp>
#include <looptorch/optim/state/optimizer_state.hpp>
#include <looptorch/state/weights/module_tensors.hpp>

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <set>
#include <type_traits>
#include <unordered_set>
#include <vector>

namespace looptorch::detail {

/// Adds up the memory of tensors on one device; memory that several share counts once.
class TensorBytes {
 public:
  explicit TensorBytes(at::Device device) : device_(with_index(device)) {}

  /// Returns the bytes that `tensor` adds.
  std::int64_t add(const at::Tensor& tensor) {
    if (!tensor.defined() || tensor.device() != device_) return 0;
    if (!tensor.has_storage()) return static_cast<std::int64_t>(tensor.nbytes());
    const auto& storage = tensor.storage();
    if (!seen_.insert(storage.unsafeGetStorageImpl()).second) return 0;
    const auto bytes = static_cast<std::int64_t>(storage.nbytes());
    if (device_.is_cpu() && !HostMemory::counts(storage.data_ptr())) uncounted_ += bytes;
    return bytes;
  }
  std::int64_t add(const StateDict& state) {
    std::int64_t bytes = 0;
    for (const auto& [name, value] : state.values())
      if (const auto* tensor = value.get_if<at::Tensor>()) bytes += add(*tensor);
    return bytes;
  }

  [[nodiscard]] std::int64_t uncounted() const { return uncounted_; }

 private:
  at::Device device_;
  std::set<const void*> seen_;
  std::int64_t uncounted_ = 0;
};

/// Returns the bytes of an optimizer's state for each parameter.
template <class Optimizer>
std::int64_t moment_bytes(Optimizer& optimizer, const std::vector<at::Tensor>& parameters,
                          TensorBytes& bytes) {
  std::int64_t sum = 0;
  if constexpr (SavesWhole<Optimizer>) {
    StateDict state;
    optimizer.state_dict(state);
    sum += bytes.add(state);
  } else if constexpr (SavesParameters<Optimizer>) {
    for (const at::Tensor& parameter : parameters) sum += bytes.add(StateDict(optimizer.state_of(parameter)));
  } else if constexpr (LibTorchOptimizer<Optimizer>) {
    using State = typename libtorch_classes_t<Optimizer>::State;
    for (const auto& [parameter, kept] : optimizer.state())
      each_kept(static_cast<State&>(*kept), [&](const char*, const auto& value) {
        if constexpr (std::is_same_v<std::remove_cvref_t<decltype(value)>, at::Tensor>)
          sum += bytes.add(value);
      });
  }
  return sum;
}

/// Returns what the run holds on the model's device.
template <class Engine>
[[nodiscard]] HeldMemory held_memory(Engine& engine) {
  engine.refresh_parameters();
  TensorBytes bytes(engine.run().device());
  HeldMemory held;
  for (const auto& [name, tensor] : looptorch::state_dict(engine.model())) held.weights += bytes.add(tensor);
  for_each_index<Engine::kUpdates>([&](auto i) {
    const UpdateView& view = engine.run().updates()[i];
    for (const at::Tensor& parameter : view.parameters) {
      held.weights += bytes.add(parameter);
      if (parameter.requires_grad()) held.gradients += static_cast<std::int64_t>(parameter.nbytes());
    }
    auto& optimizer = *engine.template update<i>().optimizer;
    if (OptimizerShards* const shards = engine.template shards<i>()) {
      const ShardsInGroups held_here(optimizer, *shards);
      held.optimizer += moment_bytes(optimizer, shards->tensors(), bytes);
    } else {
      held.optimizer += moment_bytes(optimizer, view.parameters, bytes);
    }
  });
  for (const auto& [name, average] : weight_averages(engine.stack())) held.averages += bytes.add(average);
  MemoryForecast forecast{engine.run(), engine.window_length()};
  engine.stack().template run<forecast_memory_hook>(forecast);
  held.gradients = forecast.gradient_sums.value_or(held.gradients);
  held.uncounted = bytes.uncounted();
  return held;
}

/// Returns what the run will hold after its first updates: with moments and averages that do not exist yet,
/// and with those of parameters that are trained later.
template <class Engine>
[[nodiscard]] HeldMemory expected_memory(Engine& engine) {
  HeldMemory held = held_memory(engine);
  MemoryForecast forecast{engine.run(), engine.window_length()};
  engine.stack().template run<forecast_memory_hook>(forecast);
  held.gradients = 0;
  std::unordered_set<const void*> counted;  // a tied weight may be listed under each of its names
  for_each_index<Engine::kUpdates>([&](auto i) {
    auto& optimizer = *engine.template update<i>().optimizer;
    const auto groups = optimizer.param_groups();  // copies, with the whole parameters
    OptimizerShards* const shards = engine.template shards<i>();
    std::optional<ShardsInGroups> held_here;
    if (shards) held_here.emplace(optimizer, *shards);
    for (const auto& group : groups)
      for (const at::Tensor& parameter : group.params()) {
        if (!forecast.trains(parameter)) continue;
        if (!counted.insert(parameter.unsafeGetTensorImpl()).second) continue;
        held.gradients += static_cast<std::int64_t>(parameter.nbytes());
        const at::Tensor& here = shards ? shards->of(parameter).shard : parameter;
        if (here.defined() && parameter_state(optimizer, here).empty())
          held.optimizer += state_bytes_of(optimizer, group, here);
      }
  });
  held.gradients = forecast.gradient_sums.value_or(held.gradients);
  held.averages = std::max(held.averages, forecast.averages);
  held.copies = forecast.copies;
  if (forecast.snapshots) held.snapshot = held.weights + held.optimizer + held.averages;
  return held;
}

}  // namespace looptorch::detail
