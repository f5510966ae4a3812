// SPDX-License-Identifier: MIT
// Limits a program to a part of a device's memory: an allocation beyond it throws c10::OutOfMemoryError. On
// CUDA the limit is enforced by LibTorch's caching allocator. On a CPU it is enforced by looptorch's
// HostMemory, which counts the bytes of tensors.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/memory/measure/host_memory.hpp>
#include <looptorch/memory/measure/memory_counter.hpp>

#include <c10/core/Device.h>

#if __has_include(<c10/cuda/CUDACachingAllocator.h>) && __has_include(<cuda_runtime_api.h>)
#include <c10/cuda/CUDACachingAllocator.h>
#define LOOPTORCH_CAPS_CUDA 1
#else
#define LOOPTORCH_CAPS_CUDA 0
#endif

#include <algorithm>
#include <cstdint>

namespace looptorch::app {

/// The most bytes of a GPU that a process takes besides tensors: CUDA's context and the workspaces of cuBLAS
/// and cuDNN, 0.5 to 0.9 GB on an H100. `nvidia-smi` shows them with the tensors.
inline constexpr std::int64_t kContextBytes = 900'000'000;

/// Limits tensors on `device` to `bytes` from now on. On a CPU, tensors made earlier are not counted. On CUDA
/// unused blocks of the allocator count, and the context of some hundred MB does not. Throws UsageError for
/// another device, and for CUDA where this program was built without its headers.
inline void set_memory_cap(at::Device device, std::int64_t bytes) {
  if (device.is_cpu()) return HostMemory::counted().set_limit(bytes);
#if LOOPTORCH_CAPS_CUDA
  if (device.is_cuda()) {
    const auto capacity = memory_capacity(device);
    if (!capacity) throw UsageError(message("the memory of ", device, " is not known"));
    const double share = static_cast<double>(bytes) / static_cast<double>(capacity->total);
    return c10::cuda::CUDACachingAllocator::setMemoryFraction(std::min(share, 1.0),
                                                              device.has_index() ? device.index() : 0);
  }
#endif
  throw UsageError(message("the memory of ", device, " cannot be capped: choose a CPU or a CUDA device"));
}

/// Lifts the cap on a CPU's tensors while it lives, for example for the copies that a preflight makes.
class HostCapLifted {
 public:
  HostCapLifted() : was_(HostMemory::counted().limit()) {
    HostMemory::counted().set_limit(HostMemory::kNoLimit);
  }
  ~HostCapLifted() { HostMemory::counted().set_limit(was_); }
  HostCapLifted(const HostCapLifted&) = delete;
  HostCapLifted& operator=(const HostCapLifted&) = delete;

 private:
  std::int64_t was_;
};

}  // namespace looptorch::app
