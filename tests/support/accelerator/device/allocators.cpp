// SPDX-License-Identifier: MIT
// Implements LibTorch's allocators for the simulated accelerator: of a device's memory, by the driver's block
// pools, and of pinned memory.
#include "support/accelerator/device/allocators.hpp"

#include "support/accelerator/driver.hpp"
#include "support/accelerator/graph/recording.hpp"

#include <c10/core/DeviceGuard.h>
#include <c10/core/StorageImpl.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace looptorch_test::accelerator {

namespace {

/// Issues a copy within a device on its current stream.
void copy_within(void* to, const void* from, std::size_t bytes) {
  const Lock lock(driver().mutex);
  const int stream = current_stream(device_of(to));
  driver().issue(stream, driver().tick(stream), [to, from, bytes](Copy copy) {
    std::memcpy(driver().in(copy, to), driver().in(copy, from), bytes);
  });
}

class DeviceMemory final : public looptorch::detail::DeviceAllocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    const int index = current_device();
    if (bytes == 0) return {nullptr, nullptr, &free, device(index)};
    char* data = nullptr;
    {
      const Lock lock(driver().mutex);
      data = driver().allocate(index, bytes);
    }
    report(data, static_cast<std::int64_t>(bytes), device(index));
    return {data, data, &free, device(index)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    if (bytes) copy_within(to, from, bytes);
  }

  bool initialized() override {
    return std::any_of(driver().devices.begin(), driver().devices.end(),
                       [](const DeviceState& state) { return state.used; });
  }
  void emptyCache(looptorch::detail::MempoolId_t) override {
    const Lock lock(driver().mutex);
    for (int i = 0; i < kMaxDevices; ++i)
      TORCH_CHECK(!is_recording(i), "captures_underway.empty() INTERNAL ASSERT FAILED (simulated)");
    driver().ledger.wait(Wait::device, "emptyCache");
    for (int i = 0; i < kMaxDevices; ++i) driver().empty_cache(i);
  }
  void recordStream(const c10::DataPtr& data, c10::Stream stream) override {
    const Lock lock(driver().mutex);
    const int number = stream_number(stream.device_index(), static_cast<int>(stream.id()));
    if (Block* const block = driver().find(data.get())) block->recorded.set(static_cast<std::size_t>(number));
  }

  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex index) override {
    const Lock lock(driver().mutex);
    return stats(index);
  }
  void resetAccumulatedStats(c10::DeviceIndex index) override {
    const Lock lock(driver().mutex);
    each_stat(index, [](c10::CachingAllocator::Stat& stat) { stat.reset_accumulated(); });
    auto& all = stats(index);
    all.num_alloc_retries = all.num_ooms = all.num_sync_all_streams = 0;
    all.num_device_alloc = all.num_device_free = 0;
  }
  void resetPeakStats(c10::DeviceIndex index) override {
    const Lock lock(driver().mutex);
    each_stat(index, [](c10::CachingAllocator::Stat& stat) { stat.reset_peak(); });
  }
  std::pair<std::size_t, std::size_t> getMemoryInfo(c10::DeviceIndex index) override {
    const Lock lock(driver().mutex);
    const BlockPool& pool = driver().device(index).pool;
    return {pool.capacity() - pool.reserved(), pool.capacity() + driver().options.others_bytes};
  }

 private:
  static BlockPool::Stats& stats(c10::DeviceIndex index) { return driver().device(index).pool.stats(); }
  template <class Change>
  static void each_stat(c10::DeviceIndex index, const Change& change) {
    auto& all = stats(index);
    for (auto* array :
         {&all.allocation, &all.segment, &all.active, &all.inactive_split, &all.allocated_bytes,
          &all.reserved_bytes, &all.active_bytes, &all.inactive_split_bytes, &all.requested_bytes})
      for (c10::CachingAllocator::Stat& stat : *array) change(stat);
  }
  static void free(void* data) {
    if (!data) return;
    const auto index = static_cast<c10::DeviceIndex>(device_of(data));
    {
      const Lock lock(driver().mutex);
      driver().free(data);
    }
    report(data, -1, device(index));
  }
  /// Tells LibTorch's profiler, as CUDA's allocator does; the bytes of memory that is freed are not known
  /// here.
  static void report(void* data, std::int64_t bytes, c10::Device where) {
    c10::reportMemoryUsageToProfiler(data, bytes, 0, 0, where);
  }
};

class PinnedMemory final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    if (bytes == 0) return {nullptr, nullptr, &free, c10::Device(c10::kCPU)};
    const Lock lock(driver().mutex);
    HostBlock* const block = driver().allocate_host(bytes);
    return {block->data, block, &free, c10::Device(c10::kCPU)};
  }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

 private:
  static void free(void* block) {
    if (!block) return;
    const Lock lock(driver().mutex);
    driver().free_host(*static_cast<HostBlock*>(block));
  }
};

}  // namespace

looptorch::detail::DeviceAllocator& device_memory() {
  static auto* const memory = new DeviceMemory;
  return *memory;
}

c10::Allocator& pinned_memory() {
  static auto* const memory = new PinnedMemory;
  return *memory;
}

void grow(c10::StorageImpl& storage, std::size_t bytes, c10::Device device) {
  const c10::DeviceGuard guard(device);
  c10::DataPtr data = device_memory().allocate(bytes);
  const std::size_t kept = std::min(bytes, storage.nbytes());
  if (storage.data() && data.get() && kept > 0) copy_within(data.get(), storage.data(), kept);
  storage.set_data_ptr_noswap(std::move(data));
  storage.set_nbytes(bytes);
}

}  // namespace looptorch_test::accelerator
