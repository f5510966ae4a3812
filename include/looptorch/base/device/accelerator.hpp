// SPDX-License-Identifier: MIT
// Finds the accelerator of this process, whatever its type. Uses LibTorch's device-generic interface, so that
// the headers are the same with and without CUDA.
#pragma once

#include <ATen/Context.h>
#include <ATen/DeviceAccelerator.h>
#include <c10/core/Device.h>

#include <optional>

namespace looptorch::detail {

/// True for devices with streams, events and pinned host memory.
[[nodiscard]] inline bool is_accelerator(c10::Device device) {
  return at::isAccelerator(device.type()) && !device.is_mps();
}

/// Returns the type of the accelerators that this process can use, or nothing where there is none.
[[nodiscard]] inline std::optional<c10::DeviceType> accelerator_here() {
  const std::optional<c10::DeviceType> type = at::getAccelerator();
  if (!type || !is_accelerator(*type)) return std::nullopt;
  const auto& hooks = at::globalContext().getAcceleratorHooksInterface(type);
  return hooks.isAvailable() && at::accelerator::deviceCount() > 0 ? type : std::nullopt;
}

}  // namespace looptorch::detail
