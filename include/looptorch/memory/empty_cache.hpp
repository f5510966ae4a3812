// SPDX-License-Identifier: MIT
// Returns a caching allocator's unused memory to the driver. Uses LibTorch's device-generic allocator
// interface, which is the same with and without CUDA.
#pragma once

#include <looptorch/base/device/accelerator.hpp>

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Device.h>

#include <cstddef>
#include <cstdint>

namespace looptorch {

/// Releases the unused memory of `device` and returns the released bytes: 0 for a CPU, which has no such
/// cache, and for a device that has not been used. A device without an index means the current one of its
/// type. Waits for the device.
inline std::int64_t empty_cache(c10::Device device) {
  auto* allocator = detail::caching_allocator(device);
  if (!allocator) return 0;
  const auto reserved = [allocator, index = detail::with_index(device).index()] {
    constexpr auto kAggregate = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);
    return allocator->getDeviceStats(index).reserved_bytes[kAggregate].current;
  };
  const std::int64_t before = reserved();
  allocator->emptyCache();
  return before - reserved();
}

}  // namespace looptorch
