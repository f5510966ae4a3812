// SPDX-License-Identifier: MIT
// Chooses the KernelRunner that compiles and launches looptorch's CUDA kernels on a device: CudaKernels on
// NVIDIA's GPUs, or a runner that a test has set for a type of device, such as the CPU. On a device without a
// runner, optimizers and losses use tensor operations instead.
#pragma once

#include <looptorch/base/device/cuda_kernels.hpp>
#include <looptorch/base/device/kernel_source.hpp>

#include <ATen/Context.h>
#include <c10/core/Device.h>

#include <array>
#include <cstddef>

namespace looptorch::detail {

/// Returns the runner that was set for a type of device; null if none was.
[[nodiscard]] inline KernelRunner*& own_kernel_runner(c10::DeviceType type) {
  static std::array<KernelRunner*, c10::COMPILE_TIME_MAX_DEVICE_TYPES> runners{};
  return runners[static_cast<std::size_t>(type)];
}

/// A source that is ready on a device.
struct ReadyKernels {
  KernelRunner* runner = nullptr;
  std::size_t table_bytes = 0;
  [[nodiscard]] explicit operator bool() const { return table_bytes > 0; }
};

/// Returns a source's kernels on a device; the first call compiles them. Empty if they cannot run there: then
/// use tensor operations. On an accelerator the reason is printed once.
[[nodiscard]] inline ReadyKernels ready_kernels(const KernelSource& source, c10::Device device) {
  KernelRunner* runner = own_kernel_runner(device.type());
  if (!runner && device.is_cpu()) return {};
  if (!runner && device.is_cuda() && !at::globalContext().hasROCM()) runner = &CudaKernels::get();
  if (runner) return {runner, runner->prepare(source, device)};
  say_without_kernels(source.name, device, "looptorch has kernels for NVIDIA's GPUs only");
  return {};
}

}  // namespace looptorch::detail
