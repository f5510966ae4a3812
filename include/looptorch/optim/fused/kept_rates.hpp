// SPDX-License-Identifier: MIT
// Keeps each group's learning rate at a fixed address in the device's memory, where a captured step reads it
// at each replay. Serves loops that capture the optimizer's step in a CUDA graph (docs/optimizers.md).
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>
#include <c10/core/Device.h>

#include <cstddef>
#include <vector>

namespace looptorch::detail {

/// The rates of one optimizer, one tensor for each group and device.
class KeptRates {
 public:
  /// Returns a group's rate on a device, 0-dim fp64, always at one address. Writes a rate that has changed.
  const at::Tensor& on(c10::Device device, std::size_t group, double rate) {
    for (Kept& kept : kept_) {
      if (kept.group != group || kept.tensor.device() != device) continue;
      if (kept.rate != rate) kept.tensor.fill_(kept.rate = rate);
      return kept.tensor;
    }
    const at::TensorOptions options = at::TensorOptions(device).dtype(at::kDouble);
    return kept_.emplace_back(Kept{group, rate, at::full({}, rate, options)}).tensor;
  }

 private:
  struct Kept {
    std::size_t group;
    double rate;
    at::Tensor tensor;
  };
  std::vector<Kept> kept_;
};

}  // namespace looptorch::detail
