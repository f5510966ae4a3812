// SPDX-License-Identifier: MIT
// Where a program computes, and how much memory that took.
#pragma once

#include <looptorch/base/error.hpp>

#include <ATen/DeviceAccelerator.h>
#include <torch/cuda.h>

#include <sys/resource.h>

#include <cstdint>
#include <string>

namespace looptorch::app {

/// "cpu", "cuda", "cuda:1", or "auto": CUDA if there is a device. Throws UsageError for another name or an
/// absent device.
inline at::Device choose_device(const std::string& name) {
  if (name == "auto") return torch::cuda::is_available() ? at::Device(at::kCUDA, 0) : at::Device(at::kCPU);
  if (name == "cpu") return at::kCPU;
  if (!name.starts_with("cuda"))
    throw UsageError("--device: \"" + name + "\" is not cpu, cuda, cuda:N or auto");
  const at::Device device = name == "cuda" ? at::Device(at::kCUDA, 0) : at::Device(name);
  if (device.index() < torch::cuda::device_count()) return device;
  throw UsageError(
      message("--device: there is no ", name, "; CUDA devices here: ", torch::cuda::device_count()));
}

/// The most memory that was in use at once: tensors on a CUDA device, else the whole process.
inline std::int64_t peak_bytes(at::Device device) {
  if (device.is_cuda()) return at::accelerator::getDeviceStats(device.index()).allocated_bytes[0].peak;
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return std::int64_t{usage.ru_maxrss} * 1024;
}

}  // namespace looptorch::app
