// SPDX-License-Identifier: MIT
// Counts the bytes of CPU tensors, and can limit them; LibTorch's CPU allocator does neither. Costs two
// atomic operations and 64 bytes an allocation. Counting begins on request, and ends with the process.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/alignment.h>
#include <c10/util/Exception.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

namespace looptorch {

/// Bytes of one device.
struct MemoryReading {
  std::int64_t allocated = 0;      ///< Tensors now.
  std::int64_t peak = 0;           ///< Most at once since the last reset.
  std::int64_t reserved = 0;       ///< The allocator's memory, unused blocks included.
  std::int64_t peak_reserved = 0;  ///< Most reserved at once since the last reset.
};

/// The memory of CPU tensors made since counting began. Thread-safe. Excludes memory that operators take past
/// LibTorch's allocator, such as oneDNN's.
class HostMemory final : public c10::Allocator {
 public:
  /// Begins to count if it has not begun yet, and returns the counter.
  static HostMemory& counted() {
    static HostMemory& memory = install();
    return memory;
  }

  [[nodiscard]] std::int64_t allocated_bytes() const { return allocated_.load(std::memory_order_relaxed); }
  /// Returns the peak of allocated bytes since `reset_peak`.
  [[nodiscard]] std::int64_t peak_bytes() const { return peak_.load(std::memory_order_relaxed); }
  void reset_peak() { peak_.store(allocated_bytes(), std::memory_order_relaxed); }

  static constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max();
  /// Returns the most bytes that may be allocated at once.
  [[nodiscard]] std::int64_t limit() const { return limit_.load(std::memory_order_relaxed); }
  /// Sets this limit. Allocating a tensor beyond it throws c10::OutOfMemoryError, as on a GPU.
  void set_limit(std::int64_t bytes) { limit_.store(bytes, std::memory_order_relaxed); }

  /// The header before a block's tensor memory: its size.
  static constexpr std::size_t kHead = c10::gAlignment;

  /// Returns the allocator of new blocks.
  [[nodiscard]] c10::Allocator& source() const { return *source_.load(std::memory_order_acquire); }
  /// Sets the allocator of new blocks. It must also free the former one's blocks, and live until the process
  /// ends.
  void set_source(c10::Allocator& source) { source_.store(&source, std::memory_order_release); }

  /// Is notified of each block.
  class Listener {
   public:
    virtual void on_allocate(void* block, std::int64_t bytes) = 0;
    virtual void on_free(void* block) = 0;

   protected:
    ~Listener() = default;
  };
  /// Reports each block to `listener`, which must live until the process ends; null ends the reports.
  void set_listener(Listener* listener) { listener_.store(listener, std::memory_order_release); }

  /// A simulated device for these blocks (shapes_only), whose allocator holds more than tensors.
  class Device {
   public:
    [[nodiscard]] virtual MemoryReading read() const = 0;
    virtual void reset_peak() = 0;
    /// Places all blocks anew, without gaps: first those of `data`, in that order.
    virtual void repack(const std::vector<const void*>& data) = 0;

   protected:
    ~Device() = default;
  };
  [[nodiscard]] static Device* device() { return device_.load(std::memory_order_acquire); }
  /// Makes MemoryCounter read `device` instead of the CPU; null: the CPU again.
  static void set_device(Device* device) { device_.store(device, std::memory_order_release); }

  /// The memory that a block would take in a run on the simulated device. `computed`: the device's, for an
  /// operator's result. `host`: the host's. `copied`: the device's, for a batch, from the copy stream.
  enum class Place { computed, host, copied };
  [[nodiscard]] static Place place() { return place_; }
  /// Places this thread's blocks while it lives.
  class PlaceScope {
   public:
    explicit PlaceScope(Place place) : before_(std::exchange(place_, place)) {}
    ~PlaceScope() { place_ = before_; }
    PlaceScope(const PlaceScope&) = delete;
    PlaceScope& operator=(const PlaceScope&) = delete;

   private:
    Place before_;
  };

  c10::DataPtr allocate(std::size_t size) override {
    const auto bytes = static_cast<std::int64_t>(size);
    take(bytes);
    std::byte* block = nullptr;
    try {
      block = static_cast<std::byte*>(source().raw_allocate(kHead + size));
    } catch (...) {
      allocated_.fetch_sub(bytes, std::memory_order_relaxed);
      throw;
    }
    *reinterpret_cast<std::int64_t*>(block) = bytes;
    if (Listener* const listener = listener_.load(std::memory_order_acquire))
      listener->on_allocate(block, bytes);
    return {block + kHead, block + kHead, &release, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  /// True for counted memory: not for tensors older than the counter.
  [[nodiscard]] static bool counts(const c10::DataPtr& data) { return data.get_deleter() == &release; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

 private:
  explicit HostMemory(c10::Allocator& source) : source_(&source) {}

  static HostMemory*& installed() {
    static HostMemory* memory = nullptr;
    return memory;
  }
  static HostMemory& install() {
    installed() = new HostMemory(*c10::GetCPUAllocator());  // tensors may outlive all static objects
    c10::SetCPUAllocator(installed(), /*priority=*/1);
    return *installed();
  }

  void take(std::int64_t bytes) {
    const std::int64_t now = allocated_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
    if (const std::int64_t most = limit(); now > most) {
      allocated_.fetch_sub(bytes, std::memory_order_relaxed);
      TORCH_CHECK_WITH(OutOfMemoryError, false, "looptorch: CPU tensors hold ", now - bytes,
                       " bytes, and another ", bytes, " would pass the limit of ", most);
    }
    for (std::int64_t peak = peak_bytes(); now > peak && !peak_.compare_exchange_weak(peak, now);) {
    }
  }

  static void release(void* data) {
    HostMemory& memory = *installed();
    auto* const block = static_cast<std::byte*>(data) - kHead;
    if (Listener* const listener = memory.listener_.load(std::memory_order_acquire)) listener->on_free(block);
    memory.allocated_.fetch_sub(*reinterpret_cast<const std::int64_t*>(block), std::memory_order_relaxed);
    memory.source().raw_deallocate(block);
  }

  std::atomic<c10::Allocator*> source_;
  std::atomic<Listener*> listener_ = nullptr;
  static inline std::atomic<Device*> device_ = nullptr;
  static inline thread_local Place place_ = Place::computed;
  std::atomic<std::int64_t> allocated_ = 0, peak_ = 0, limit_ = kNoLimit;
};

}  // namespace looptorch
