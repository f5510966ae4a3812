// SPDX-License-Identifier: MIT
// Finds the accelerator that this process uses, of whatever type, and returns its current stream, the devices
// in use and its caching allocator. All code that handles device memory or streams uses these functions. They
// call LibTorch's device-generic interface, so they compile with and without CUDA.
#pragma once

#include <looptorch/base/device/older_libtorch.hpp>

#include <ATen/Context.h>
#include <ATen/DeviceAccelerator.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/SmallVector.h>

#include <optional>

namespace looptorch {

namespace detail {

/// True on a thread whose CPU tensors stand for an accelerator's (ShapesOnly).
inline thread_local bool cpu_stands_for_accelerator = false;

}  // namespace detail

/// True if CPU kernels compute on this device; false on a CPU that stands for an accelerator (ShapesOnly). A
/// model with a path of its own for CPUs asks this, so that ShapesOnly measures the accelerator's path.
[[nodiscard]] inline bool computes_on_cpu(at::Device device) {
  return device.is_cpu() && !detail::cpu_stands_for_accelerator;
}
[[nodiscard]] inline bool computes_on_cpu(const at::Tensor& tensor) {
  return tensor.is_cpu() && !detail::cpu_stands_for_accelerator;
}

namespace detail {

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

/// Returns the accelerators on which this process has a context. Creates none: on CUDA that would take
/// hundreds of megabytes.
[[nodiscard]] inline c10::SmallVector<c10::Device, 8> accelerators_in_use() {
  c10::SmallVector<c10::Device, 8> devices;
  const auto type = accelerator_here();
  if (!type) return devices;
  const auto& hooks = at::globalContext().getAcceleratorHooksInterface(type);
  for (c10::DeviceIndex i = 0; i < at::accelerator::deviceCount(); ++i)
    if (hooks.hasPrimaryContext(i)) devices.emplace_back(*type, i);
  return devices;
}

/// Returns the device itself, or the current one of its type if it has no index.
[[nodiscard]] inline c10::Device with_index(c10::Device device) {
  return device.has_index() ? device : c10::impl::VirtualGuardImpl(device.type()).getDevice();
}

/// Returns the stream on which this thread computes on an accelerator.
[[nodiscard]] inline c10::Stream stream_of(c10::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

/// Returns one of an accelerator's other streams.
[[nodiscard]] inline c10::Stream stream_from_pool(c10::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
}

/// Returns the device's caching allocator, or null if it has none or has not been used.
[[nodiscard]] inline DeviceAllocator* caching_allocator(c10::Device device) {
  auto* allocator = device_allocator(device.type());
  return allocator && allocator->initialized() ? allocator : nullptr;
}

/// Begins a copy to a tensor in host memory. Resolves a source that is conjugated or negated when it is read:
/// LibTorch would do that on the host, before an asynchronous copy has arrived.
inline void begin_copy_to_host(const at::Tensor& host, const at::Tensor& source) {
  const bool is_plain = !source.is_conj() && !source.is_neg();
  host.copy_(is_plain ? source : source.resolve_conj().resolve_neg(), /*non_blocking=*/true);
}

}  // namespace detail

}  // namespace looptorch
