// SPDX-License-Identifier: MIT
// Asks LibTorch which CUDA it was built with, and NVIDIA's driver which GPUs there are. Compiles and links
// without CUDA, and creates no context on a GPU.
#pragma once

#include <looptorch/app/device/cuda_device.hpp>
#include <looptorch/base/device/cuda_driver.hpp>

#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/util/Exception.h>
#include <torch/version.h>

#include <dlfcn.h>

#include <functional>
#include <optional>
#include <utility>
#include <vector>

namespace looptorch::app {

/// The facts by which `choose_device` decides. A part is empty if LibTorch has no CUDA, or no driver is
/// there.
struct CudaFacts {
  std::optional<CudaBuild> build;
  std::optional<CudaMachine> machine;
};

/// Returns the facts. Tests replace it by a function of their own.
using CudaQuery = std::function<CudaFacts()>;

namespace detail {

/// Returns the version of the CUDA runtime that LibTorch has loaded, or 0 if there is none. Asks the runtime
/// itself: LibTorch's hooks throw under a driver that is too old.
inline int cuda_runtime_version() {
  int version = 0;
  void* const found = ::dlsym(RTLD_DEFAULT, "cudaRuntimeGetVersion");
  return found && reinterpret_cast<int (*)(int*)>(found)(&version) == 0 ? version : 0;
}

/// Returns the kernels in LibTorch, or none if they are unknown.
inline std::vector<CudaKernels> kernels_in_libtorch() {
  try {
    return parse_nvcc_flags(at::detail::getCUDAHooks().showConfig());
  } catch (const c10::Error&) {
    return {};
  }
}

/// Returns LibTorch's CUDA build, or nothing if LibTorch is for the CPU alone.
inline std::optional<CudaBuild> cuda_build() {
  const auto& hooks = at::detail::getCUDAHooks();
  const int cuda = cuda_runtime_version();
  if (!hooks.isBuilt() || hooks.hasROCM() || cuda == 0) return std::nullopt;
  return CudaBuild{TORCH_VERSION, cuda, kernels_in_libtorch()};
}

/// Returns a GPU's name and capability, or nothing if the driver does not answer.
[[nodiscard]] inline std::optional<CudaMachine::Gpu> gpu_at(const looptorch::detail::CudaDriver& driver,
                                                            int index) {
  constexpr int kMajor = 75, kMinor = 76;  // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, _MINOR
  CudaMachine::Gpu gpu{driver.name(index), {}};
  int device = 0;
  if (gpu.name.empty() || !driver.call("cuDeviceGet", &device, index) ||
      !driver.call("cuDeviceGetAttribute", &gpu.capability.major, kMajor, device) ||
      !driver.call("cuDeviceGetAttribute", &gpu.capability.minor, kMinor, device))
    return std::nullopt;
  return gpu;
}

/// Returns the driver's version and GPUs, or nothing where there is no driver that can be used.
inline std::optional<CudaMachine> cuda_machine() {
  const auto& driver = looptorch::detail::CudaDriver::get();
  CudaMachine machine;
  int count = 0;
  if (!driver.call("cuInit", 0u) || !driver.call("cuDriverGetVersion", &machine.driver) ||
      !driver.call("cuDeviceGetCount", &count))
    return std::nullopt;
  for (int i = 0; i < count; ++i) {
    auto gpu = gpu_at(driver, i);
    if (!gpu) return std::nullopt;
    machine.gpus.push_back(std::move(*gpu));
  }
  return machine;
}

}  // namespace detail

/// Returns the facts of this machine. Asks LibTorch only if the driver has GPUs.
inline CudaFacts query_cuda() {
  CudaFacts facts{{}, detail::cuda_machine()};
  if (facts.machine && !facts.machine->gpus.empty()) facts.build = detail::cuda_build();
  return facts;
}

}  // namespace looptorch::app
