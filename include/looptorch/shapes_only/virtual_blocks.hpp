// SPDX-License-Identifier: MIT
// Implements ShapesOnly's CPU allocator, with which a model larger than the machine's memory can be built.
// Blocks of 128 KiB or more get a range of addresses whose pages all lie in the same 64 MiB of memory: they
// can be read and written, but the values are meaningless. Integer tensors (indices, lengths) and masks get
// pages of their own, since kernels branch on their values. Such pages begin as zeros, and take memory only
// where something is written. Sizes, strides and reference counts are those of a real run.
#pragma once

#include <looptorch/memory/measure/host_memory.hpp>
#include <looptorch/shapes_only/device_pool.hpp>

#include <c10/core/Allocator.h>
#include <c10/util/Exception.h>

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

namespace looptorch::detail::shapes {

/// Makes this thread's blocks real, or virtual if large, while it lives. Large real blocks hold zeros.
class RealBlocksScope {
 public:
  explicit RealBlocksScope(bool real) : before_(std::exchange(are_real_, real)) {}
  ~RealBlocksScope() { are_real_ = before_; }
  RealBlocksScope(const RealBlocksScope&) = delete;
  RealBlocksScope& operator=(const RealBlocksScope&) = delete;

  /// True on a thread whose blocks are all real, since they hold integers.
  [[nodiscard]] static bool are_real() { return are_real_; }

 private:
  static inline thread_local bool are_real_ = false;
  bool before_;
};

/// The allocator behind HostMemory, which counts its blocks. While it is on, large blocks are virtual, or
/// real on a thread with RealBlocksScope. Thread-safe.
class VirtualBlocks final : public c10::Allocator {
 public:
  /// Bytes of the smallest virtual block.
  static constexpr std::size_t kLeast = std::size_t{1} << 17;

  /// Installs the allocator, at the first call, until the process ends.
  static VirtualBlocks& installed() {
    static VirtualBlocks& blocks = install();
    return blocks;
  }

  /// Makes large blocks virtual from now on, or no longer. Unmaps freed blocks when it is turned off.
  void set_on(bool on) {
    on_.store(on, std::memory_order_relaxed);
    if (on) return;
    const std::lock_guard lock(mutex_);
    for (const auto& [size, blocks] : free_)
      for (void* const block : blocks) munmap(block, size);
    free_.clear();
  }

  /// Makes MemoryCounter read a device, which holds the blocks of `count_on_device`; null: the CPU again.
  void count_as(DevicePool* pool) {
    const std::lock_guard lock(mutex_);
    HostMemory::set_device(pool);
    pool_.store(pool, std::memory_order_relaxed);
  }

  c10::DataPtr allocate(std::size_t size) override {
    const bool is_large = size >= kLeast && on_.load(std::memory_order_relaxed);
    void* const block = is_large ? take(size, !RealBlocksScope::are_real()) : inner_.raw_allocate(size);
    return {block, block, &release, c10::Device(c10::kCPU)};
  }
  /// True for memory of a virtual block.
  [[nodiscard]] bool has_virtual(const c10::DataPtr& data) {
    if (!HostMemory::counts(data)) return false;
    const std::lock_guard lock(mutex_);
    const auto found = mapped_.find(static_cast<std::byte*>(data.get()) - HostMemory::kHead);
    return found != mapped_.end() && found->second.is_virtual;
  }
  /// Adds a tensor's block to the simulated device, at the place of this thread's PlaceScope.
  void count_on_device(const c10::DataPtr& data, std::size_t bytes) {
    if (!HostMemory::counts(data)) return;
    const auto* const block = static_cast<const std::byte*>(data.get()) - HostMemory::kHead;
    on_device([&](DevicePool& pool) { pool.allocate(block, bytes, HostMemory::place()); });
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

 private:
  static constexpr std::size_t kPage = 4096, kShared = std::size_t{64} << 20;
  struct Mapped {
    std::size_t size;
    bool is_virtual;
  };

  explicit VirtualBlocks(c10::Allocator& inner) : inner_(inner), shared_(memfd_create("shared pages", 0)) {
    TORCH_CHECK(shared_ >= 0 && ftruncate(shared_, kShared) == 0, "cannot make ", kShared,
                " bytes of shared memory");
  }
  static VirtualBlocks& install() {
    HostMemory& counter = HostMemory::counted();
    auto* const blocks = new VirtualBlocks(counter.source());  // tensors may outlive static objects
    counter.set_source(*blocks);
    return *blocks;
  }

  /// Calls `use` with the simulated device, if there is one.
  template <class Use>
  void on_device(const Use& use) {
    if (!pool_.load(std::memory_order_relaxed)) return;
    const std::lock_guard lock(mutex_);
    if (DevicePool* const pool = pool_.load(std::memory_order_relaxed)) use(*pool);
  }

  /// Returns a mapped block: a virtual one from the free ones, if one has this size.
  void* take(std::size_t size, bool is_virtual) {
    const std::size_t whole = (size + kPage - 1) / kPage * kPage;
    const std::lock_guard lock(mutex_);
    const auto free = free_.find(whole);
    void* block = nullptr;
    if (is_virtual && free != free_.end() && !free->second.empty())
      block = free->second.back(), free->second.pop_back();
    else
      block = map(whole, is_virtual);
    mapped_.emplace(block, Mapped{whole, is_virtual});
    count_.store(mapped_.size(), std::memory_order_relaxed);
    return block;
  }

  /// Maps a block. A virtual one's first page is its own, since HostMemory writes the block's size there.
  [[nodiscard]] void* map(std::size_t whole, bool is_virtual) const {
    constexpr int kMode = PROT_READ | PROT_WRITE, kReserve = MAP_NORESERVE;
    void* const block = mmap(nullptr, whole, kMode, MAP_PRIVATE | MAP_ANONYMOUS | kReserve, -1, 0);
    bool mapped = block != MAP_FAILED;
    for (std::size_t at = kPage; is_virtual && mapped && at < whole; at += kShared)
      mapped = mmap(static_cast<std::byte*>(block) + at, std::min(kShared, whole - at), kMode,
                    MAP_SHARED | MAP_FIXED | kReserve, shared_, 0) != MAP_FAILED;
    TORCH_CHECK(mapped, "cannot map a virtual block of ", whole, " bytes");
    return block;
  }

  static void release(void* block) {
    VirtualBlocks& blocks = installed();
    blocks.on_device([&](DevicePool& pool) { pool.free(block); });
    if (blocks.count_.load(std::memory_order_relaxed) == 0) return blocks.inner_.raw_deallocate(block);
    std::unique_lock lock(blocks.mutex_);
    const auto found = blocks.mapped_.find(block);
    if (found == blocks.mapped_.end()) {
      lock.unlock();
      return blocks.inner_.raw_deallocate(block);
    }
    const Mapped mapped = found->second;
    blocks.mapped_.erase(found);
    blocks.count_.store(blocks.mapped_.size(), std::memory_order_relaxed);
    if (mapped.is_virtual && blocks.on_.load(std::memory_order_relaxed))
      blocks.free_[mapped.size].push_back(block);
    else
      munmap(block, mapped.size);
  }

  c10::Allocator& inner_;
  int shared_;
  std::atomic<bool> on_ = false;
  std::atomic<std::size_t> count_ = 0;       // of mapped blocks in use
  std::atomic<DevicePool*> pool_ = nullptr;  // written under the mutex
  std::mutex mutex_;
  std::unordered_map<void*, Mapped> mapped_;                  // in use
  std::unordered_map<std::size_t, std::vector<void*>> free_;  // virtual ones, by size
};

}  // namespace looptorch::detail::shapes
