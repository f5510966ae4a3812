// SPDX-License-Identifier: MIT
// Hands out CPU memory that is not there: a block of 128 KiB or more is a range of addresses whose pages all
// lie in the same few megabytes. Reading and writing it is allowed and gives nonsense. So a model that is
// larger than the machine can be built, and LibTorch's bookkeeping of it is true.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <mutex>
#include <unordered_map>

namespace looptorch_bench {

/// An allocator of CPU tensors that stands in front of LibTorch's. While it is on, large blocks are virtual;
/// smaller ones, such as indices and lengths, are real. Any thread may call it.
class VirtualBlocks final : public c10::Allocator {
 public:
  static constexpr std::size_t kLeast = std::size_t{1} << 17;  ///< Bytes of the smallest virtual block.

  /// Installs the allocator, at the first call. Call it before looptorch::HostMemory begins to count, which
  /// then stands in front of it.
  static VirtualBlocks& installed() {
    static VirtualBlocks& blocks = install();
    return blocks;
  }

  void turn(bool on) { on_.store(on, std::memory_order_relaxed); }

  c10::DataPtr allocate(std::size_t size) override {
    const bool is_virtual = size >= kLeast && on_.load(std::memory_order_relaxed);
    void* const block = is_virtual ? map(size) : inner_.raw_allocate(size);
    return {block, block, &release, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

 private:
  static constexpr std::size_t kPage = 4096, kShared = std::size_t{64} << 20;

  explicit VirtualBlocks(c10::Allocator& inner) : inner_(inner), shared_(memfd_create("shared pages", 0)) {
    TORCH_CHECK(shared_ >= 0 && ftruncate(shared_, kShared) == 0, "cannot make ", kShared,
                " bytes of shared memory");
  }
  static VirtualBlocks& install() {
    auto* const blocks = new VirtualBlocks(*c10::GetCPUAllocator());  // tensors may outlive static objects
    c10::SetCPUAllocator(blocks, /*priority=*/1);
    return *blocks;
  }

  /// Maps a block. Its first page is its own, since HostMemory writes the block's size there.
  void* map(std::size_t size) {
    constexpr int kMode = PROT_READ | PROT_WRITE, kReserve = MAP_NORESERVE;
    const std::size_t whole = (size + kPage - 1) / kPage * kPage;
    void* const block = mmap(nullptr, whole, kMode, MAP_PRIVATE | MAP_ANONYMOUS | kReserve, -1, 0);
    bool mapped = block != MAP_FAILED;
    for (std::size_t at = kPage; mapped && at < whole; at += kShared)
      mapped = mmap(static_cast<std::byte*>(block) + at, std::min(kShared, whole - at), kMode,
                    MAP_SHARED | MAP_FIXED | kReserve, shared_, 0) != MAP_FAILED;
    TORCH_CHECK(mapped, "cannot map a virtual block of ", size, " bytes");
    const std::lock_guard lock(mutex_);
    sizes_.emplace(block, whole);
    return block;
  }

  static void release(void* block) {
    VirtualBlocks& blocks = installed();
    std::unique_lock lock(blocks.mutex_);
    const auto found = blocks.sizes_.find(block);
    if (found == blocks.sizes_.end()) {
      lock.unlock();
      blocks.inner_.raw_deallocate(block);
      return;
    }
    const std::size_t size = found->second;
    blocks.sizes_.erase(found);
    lock.unlock();
    munmap(block, size);
  }

  c10::Allocator& inner_;
  int shared_;
  std::atomic<bool> on_ = false;
  std::mutex mutex_;
  std::unordered_map<void*, std::size_t> sizes_;
};

}  // namespace looptorch_bench
