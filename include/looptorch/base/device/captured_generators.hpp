// SPDX-License-Identifier: MIT
// Captures and restores the process's default random generators, of the CPU and of accelerators in use, for
// rollbacks. Snapshots use RandomStates, which holds the states as tensors.
#pragma once

#include <looptorch/base/device/accelerator.hpp>
#include <looptorch/base/device/captured_generator.hpp>
#include <looptorch/base/device/generator_state.hpp>

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

namespace looptorch::detail {

class CapturedGenerators {
 public:
  /// Captures the states as they are now.
  void capture() {
    cpu_ ? cpu_->capture() : static_cast<void>(cpu_.emplace(default_generator(at::kCPU)));
    if (!is_alone_) is_alone_ = !accelerator_here();
    others_.clear();
    if (*is_alone_) return;
    for (const at::Device device : accelerators_in_use()) others_.emplace_back(default_generator(device));
  }

  /// Restores the captured states. Can be called again.
  void restore() const {
    if (cpu_) cpu_->restore();
    for (const CapturedGenerator& other : others_) other.restore();
  }

 private:
  std::optional<bool> is_alone_;  // the CPU: no accelerator can come into use
  std::optional<CapturedGenerator> cpu_;
  std::vector<CapturedGenerator> others_;
};

}  // namespace looptorch::detail
