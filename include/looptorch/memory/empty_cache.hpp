// SPDX-License-Identifier: MIT
// Gives memory that a device's caching allocator holds unused back to the driver. Works through LibTorch's
// device-generic allocator interface, so that the header is the same with and without CUDA.
#pragma once

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Device.h>

#include <cstddef>
#include <cstdint>

namespace looptorch {

/// Returns the bytes given back; 0 on the CPU, which has no cache of that kind. Waits for the device.
inline std::int64_t empty_cache(c10::Device device) {
  if (device.is_cpu()) return 0;
  c10::DeviceAllocator* allocator = c10::getDeviceAllocator(device.type());
  const auto reserved = [&] {
    constexpr auto kAggregate = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);
    return allocator->getDeviceStats(device.index()).reserved_bytes[kAggregate].current;
  };
  const std::int64_t before = reserved();
  allocator->emptyCache();
  return before - reserved();
}

}  // namespace looptorch
