// SPDX-License-Identifier: MIT
// Copies of the states of the process's default random generators, kept in place from window to window. The
// CPU's takes a tenth of the time of the tensor that a snapshot saves: `RandomStates`.
#pragma once

#include <looptorch/base/device/accelerator.hpp>
#include <looptorch/base/device/generator_state.hpp>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace looptorch::detail {

class KeptGenerators {
 public:
  /// Copies the states of the CPU's generator and of those of accelerators in use.
  void keep() {
    {
      at::CPUGeneratorImpl& cpu = cpu_generator();
      const std::lock_guard lock(cpu.mutex_);
      engine_ = cpu.engine();
      next_float_ = cpu.next_float_normal_sample();
      next_double_ = cpu.next_double_normal_sample();
    }
    if (!is_alone_) is_alone_ = !accelerator_here();
    if (*is_alone_) return;
    others_.clear();
    for (const at::Device device : accelerators_in_use())
      others_.emplace_back(device, state_of(default_generator(device)));
  }

  /// Sets the generators to the copies.
  void put_back() const {
    {
      at::CPUGeneratorImpl& cpu = cpu_generator();
      const std::lock_guard lock(cpu.mutex_);
      cpu.set_engine(engine_);
      cpu.set_next_float_normal_sample(next_float_);
      cpu.set_next_double_normal_sample(next_double_);
    }
    for (const auto& [device, state] : others_) set_state(default_generator(device), state);
  }

 private:
  static at::CPUGeneratorImpl& cpu_generator() {
    return *at::detail::getDefaultCPUGenerator().get<at::CPUGeneratorImpl>();
  }

  std::optional<bool> is_alone_;  // the CPU: no accelerator can come into use
  at::mt19937 engine_;
  std::optional<float> next_float_;  // the other of two normal numbers that are drawn together
  std::optional<double> next_double_;
  std::vector<std::pair<at::Device, at::Tensor>> others_;
};

}  // namespace looptorch::detail
