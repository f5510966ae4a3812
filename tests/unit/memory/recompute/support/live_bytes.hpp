// SPDX-License-Identifier: MIT
// Counts the bytes of tensors in host memory, and lets an allocation fail: while one lives, it stands before
// the library's own counter, which other tests of the process read.
#pragma once

#include "support/precompiled.hpp"

#include <looptorch/memory/measure/host_memory.hpp>

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/alignment.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <new>

namespace checkpointed {

class LiveBytes {
 public:
  LiveBytes() {
    counter().now = counter().peak = 0;
    counter().until_failure = -1;
    limit(std::numeric_limits<std::int64_t>::max());
    c10::SetCPUAllocator(&counter(), /*priority=*/255);
  }
  ~LiveBytes() { c10::SetCPUAllocator(&counter().inner, /*priority=*/255); }
  LiveBytes(const LiveBytes&) = delete;
  LiveBytes& operator=(const LiveBytes&) = delete;

  /// Of tensors made since it began.
  [[nodiscard]] std::int64_t now() const { return counter().now; }
  [[nodiscard]] std::int64_t peak() const { return counter().peak; }
  /// The allocation after the next `count` throws std::bad_alloc.
  void fail_after(std::int64_t count) { counter().until_failure = count; }
  /// An allocation beyond so many bytes throws c10::OutOfMemoryError, as a device's would.
  void limit(std::int64_t bytes) { counter().most = bytes; }
  [[nodiscard]] bool has_failed() const { return counter().until_failure < 0; }

 private:
  /// Keeps each block's size in front of it.
  class Counter final : public c10::Allocator {
   public:
    c10::DataPtr allocate(std::size_t size) override {
      if (until_failure >= 0 && until_failure-- == 0) throw std::bad_alloc();
      TORCH_CHECK_WITH(OutOfMemoryError, now + static_cast<std::int64_t>(size) <= most, "no memory for ",
                       size, " bytes more");
      auto* const block = static_cast<std::byte*>(inner.raw_allocate(kHead + size));
      *reinterpret_cast<std::size_t*>(block) = size;
      const std::int64_t total = now += static_cast<std::int64_t>(size);
      peak = std::max(peak.load(), total);
      return {block + kHead, block + kHead, &Counter::free, at::Device(at::kCPU)};
    }
    c10::DeleterFnPtr raw_deleter() const override { return &Counter::free; }
    void copy_data(void* to, const void* from, std::size_t size) const override {
      default_copy_data(to, from, size);
    }

    /// Installed first: behind the priority of this one it could not be.
    c10::Allocator& inner = looptorch::HostMemory::counted();
    std::atomic<std::int64_t> now = 0, peak = 0, until_failure = -1, most = 0;

   private:
    static constexpr std::size_t kHead = c10::gAlignment;

    static void free(void* data) {
      auto* const block = static_cast<std::byte*>(data) - kHead;
      counter().now -= static_cast<std::int64_t>(*reinterpret_cast<std::size_t*>(block));
      counter().inner.raw_deallocate(block);
    }
  };

  static Counter& counter() {
    static Counter counter;
    return counter;
  }
};

}  // namespace checkpointed
