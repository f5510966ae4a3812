// SPDX-License-Identifier: MIT
// Reads how much memory a device's tensors take, and the device's capacity, for CPUs and GPUs alike. Never
// waits for a device, since allocators count when the host allocates, not when a kernel runs.
#pragma once

#include <looptorch/base/device/accelerator.hpp>
#include <looptorch/memory/measure/host_capacity.hpp>
#include <looptorch/memory/measure/host_memory.hpp>

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Device.h>
#include <c10/util/Exception.h>

#include <cstddef>
#include <cstdint>
#include <optional>

namespace looptorch {

/// Counts the memory of one device: by LibTorch's caching allocator, or on a CPU by HostMemory, which then
/// begins to count. An unused device reads as zeros.
class MemoryCounter {
 public:
  explicit MemoryCounter(c10::Device device)
      : device_(device.is_cpu() ? device : detail::with_index(device)),
        host_(device.is_cpu() ? &HostMemory::counted() : nullptr) {}

  [[nodiscard]] c10::Device device() const { return device_; }
  /// Adds the bytes of tensors that were made before HostMemory began to count.
  void add_uncounted(std::int64_t bytes) { uncounted_ += bytes; }
  [[nodiscard]] std::int64_t uncounted() const { return uncounted_; }

  [[nodiscard]] MemoryReading read() const {
    if (host_ && HostMemory::device()) return HostMemory::device()->read();
    if (host_) {
      const std::int64_t allocated = host_->allocated_bytes() + uncounted_,
                         peak = host_->peak_bytes() + uncounted_;
      return {allocated, peak, allocated, peak};
    }
    const auto* allocator = detail::caching_allocator(device_);
    if (!allocator) return {};
    constexpr auto kAll = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);
    const auto stats = const_cast<detail::DeviceAllocator*>(allocator)->getDeviceStats(device_.index());
    return {stats.allocated_bytes[kAll].current, stats.allocated_bytes[kAll].peak,
            stats.reserved_bytes[kAll].current, stats.reserved_bytes[kAll].peak};
  }

  /// Returns a reading, and resets peaks.
  MemoryReading take() const {
    const MemoryReading reading = read();
    reset_peak();
    return reading;
  }

  /// Resets peaks, for all readers.
  void reset_peak() const {
    if (host_ && HostMemory::device())
      HostMemory::device()->reset_peak();
    else if (host_)
      host_->reset_peak();
    else if (auto* allocator = detail::caching_allocator(device_))
      allocator->resetPeakStats(device_.index());
  }

 private:
  c10::Device device_;
  HostMemory* host_;
  std::int64_t uncounted_ = 0;
};

/// Returns the capacity of `device`; empty if LibTorch cannot tell. For a CPU that is the machine's memory,
/// or the limit of the process's control groups.
[[nodiscard]] inline std::optional<MemoryCapacity> memory_capacity(c10::Device device) {
  if (device.is_cpu()) return detail::host_capacity();
  auto* allocator = detail::device_allocator(device.type());
  if (!allocator) return std::nullopt;
  try {
    const auto [available, total] = allocator->getMemoryInfo(detail::with_index(device).index());
    return MemoryCapacity{static_cast<std::int64_t>(total), static_cast<std::int64_t>(available)};
  } catch (const c10::Error&) {  // LibTorch before 2.9, and allocators that do not know
    return std::nullopt;
  }
}

}  // namespace looptorch
