// SPDX-License-Identifier: MIT
// Reads how much memory a device's tensors take, and the device's capacity, for CPUs and GPUs alike. Never
// waits for a device, since allocators count when the host allocates, not when a kernel runs.
#pragma once

#include <looptorch/base/device/accelerator.hpp>
#include <looptorch/memory/measure/host_memory.hpp>

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Device.h>
#include <c10/util/Exception.h>

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <istream>
#include <optional>
#include <string>
#include <string_view>

namespace looptorch {

/// The memory of a device, in bytes.
struct MemoryCapacity {
  std::int64_t total = 0;
  std::int64_t available = 0;  ///< Not taken by any process.
};

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

namespace detail {

/// Returns the number that follows `name` in /proc/meminfo, in bytes.
[[nodiscard]] inline std::optional<std::int64_t> memory_of_system(const std::string& name) {
  std::ifstream file("/proc/meminfo");
  for (std::string word; file >> word;)
    if (std::int64_t kib = 0; word == name + ":" && file >> kib) return kib * 1024;
  return std::nullopt;
}

/// Returns the bytes that a control group's pages of files take and that it gives up when memory runs short;
/// it counts them as used. `stat` is its memory.stat; `name` the row.
[[nodiscard]] inline std::int64_t reclaimable_of_group(std::istream& stat, std::string_view name) {
  std::string word;
  for (std::int64_t bytes = 0; stat >> word >> bytes;)
    if (word == name) return bytes;
  return 0;
}

/// Returns the number in a file of this process's control group, if it is one.
[[nodiscard]] inline std::optional<std::int64_t> memory_of_group(const char* version2, const char* version1) {
  for (const char* path : {version2, version1}) {
    std::ifstream file(path);
    if (std::int64_t bytes = 0; file >> bytes) return bytes;
  }
  return std::nullopt;
}

/// Returns what this machine has, or what the control group of the process allows.
[[nodiscard]] inline std::optional<MemoryCapacity> host_capacity() {
  const auto total = memory_of_system("MemTotal"), available = memory_of_system("MemAvailable");
  if (!total || !available) return std::nullopt;
  MemoryCapacity capacity{*total, *available};
  const auto limit =
      memory_of_group("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes");
  const auto used =
      memory_of_group("/sys/fs/cgroup/memory.current", "/sys/fs/cgroup/memory/memory.usage_in_bytes");
  if (limit && used && *limit < capacity.total) {
    std::ifstream version2("/sys/fs/cgroup/memory.stat"), version1("/sys/fs/cgroup/memory/memory.stat");
    const std::int64_t reclaimable = reclaimable_of_group(version2, "inactive_file") +
                                     reclaimable_of_group(version1, "total_inactive_file");
    const std::int64_t free = std::clamp<std::int64_t>(*limit - *used + reclaimable, 0, *limit);
    capacity = {*limit, std::min(capacity.available, free)};
  }
  return capacity;
}

}  // namespace detail

/// Returns the capacity of `device`; empty if LibTorch cannot tell. For a CPU that is the machine's memory,
/// or a container's limit.
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
