// SPDX-License-Identifier: MIT
// Returns the memory that a device's caching allocator holds unused to the driver. Works through LibTorch's
// device-generic allocator interface, so that the header is the same with and without CUDA.
#pragma once

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Device.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <cstddef>
#include <cstdint>

namespace looptorch {

/// Releases the unused memory of `device` and returns the released bytes. Returns 0 if the device has no such
/// cache, as a CPU, or has not been used. Without an index it is the current device of its type. Waits for
/// the device.
inline std::int64_t empty_cache(c10::Device device) {
  auto* allocator = dynamic_cast<c10::DeviceAllocator*>(c10::GetAllocator(device.type()));
  if (!allocator || !allocator->initialized()) return 0;
  if (!device.has_index()) device = c10::impl::VirtualGuardImpl(device.type()).getDevice();
  const auto reserved = [&] {
    constexpr auto kAggregate = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);
    return allocator->getDeviceStats(device.index()).reserved_bytes[kAggregate].current;
  };
  const std::int64_t before = reserved();
  allocator->emptyCache();
  return before - reserved();
}

}  // namespace looptorch
