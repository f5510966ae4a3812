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

/// Releases the unused memory of `device` and returns the released bytes: 0 if the device has no such cache,
/// as a CPU, or has not been used. Without an index it is the current device of its type. Waits for the
/// device.
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
