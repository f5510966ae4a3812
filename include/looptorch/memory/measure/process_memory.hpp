// SPDX-License-Identifier: MIT
// Reads how much host memory this process takes, and how much pinned memory LibTorch holds.
#pragma once

#include <looptorch/base/libtorch_version.hpp>

#include <c10/core/DeviceType.h>
#include <c10/util/Exception.h>

#if LOOPTORCH_LIBTORCH_2_9
#include <ATen/core/CachingHostAllocator.h>
#endif

#include <cstdint>
#include <fstream>
#include <string>

namespace looptorch {

/// The host memory of this process, in bytes.
struct ProcessMemory {
  std::int64_t resident = 0;  ///< Now, libraries included; 0 if the system does not tell.
  std::int64_t peak = 0;      ///< The most so far.
  std::int64_t pinned = 0;    ///< Blocks that LibTorch's pinning allocator holds; 0 before LibTorch 2.9.
};

namespace detail {

/// Returns the bytes held by a device type's allocator of pinned memory; 0 if there is none.
[[nodiscard]] inline std::int64_t pinned_bytes([[maybe_unused]] c10::DeviceType device) {
#if LOOPTORCH_LIBTORCH_2_9
  try {
    if (auto* const allocator = at::getHostAllocator(device))
      return allocator->get_stats().allocated_bytes.current;
  } catch (const c10::Error&) {  // a type of device without one
  }
#endif
  return 0;
}

}  // namespace detail

/// Reads /proc/self/status. `device` is the type that memory is pinned for.
[[nodiscard]] inline ProcessMemory process_memory(c10::DeviceType device) {
  ProcessMemory memory;
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    std::int64_t kib = 0;
    if (word == "VmRSS:" && status >> kib) memory.resident = kib * 1024;
    if (word == "VmHWM:" && status >> kib) memory.peak = kib * 1024;
  }
  if (device != c10::kCPU) memory.pinned = detail::pinned_bytes(device);
  return memory;
}

}  // namespace looptorch
