// SPDX-License-Identifier: MIT
// Gives memory that a device's caching allocator holds unused back to the driver. Works through LibTorch's
// device-generic allocator interface, so that the header is the same with and without CUDA.
#pragma once

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Device.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <cstddef>
#include <cstdint>

namespace looptorch {

/// Returns the bytes that `device` gave back; 0 where it has no cache of that kind, as a CPU, or has not been
/// used. Without an index it is the current device of its type. Waits for the device.
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
