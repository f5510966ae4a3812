// SPDX-License-Identifier: MIT
// Counts the bytes of CPU tensors. It is a library of its own, so that the same code counts for a program and
// its peer in Python. Loading it is enough; tensors that existed before are not counted.
#include "counting_allocator.hpp"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/alignment.h>

#include <atomic>
#include <cstddef>

namespace {

std::atomic<std::int64_t> live_bytes = 0, peak_bytes = 0;

/// Stores each block's size in front of it.
class CountingAllocator final : public c10::Allocator {
 public:
  static CountingAllocator& instance() {
    static CountingAllocator allocator(*c10::GetCPUAllocator());
    return allocator;
  }

  c10::DataPtr allocate(std::size_t size) override {
    auto* const block = static_cast<std::byte*>(inner_.raw_allocate(kHead + size));
    *reinterpret_cast<std::size_t*>(block) = size;
    const std::int64_t live = live_bytes += static_cast<std::int64_t>(size);
    for (std::int64_t peak = peak_bytes; live > peak && !peak_bytes.compare_exchange_weak(peak, live);) {
    }
    return {block + kHead, block + kHead, &free, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free; }
  void copy_data(void* to, const void* from, std::size_t count) const override {
    default_copy_data(to, from, count);
  }

 private:
  static constexpr std::size_t kHead = c10::gAlignment;

  explicit CountingAllocator(c10::Allocator& inner) : inner_(inner) {}

  static void free(void* data) {
    auto* const block = static_cast<std::byte*>(data) - kHead;
    live_bytes -= static_cast<std::int64_t>(*reinterpret_cast<std::size_t*>(block));
    instance().inner_.raw_deallocate(block);
  }

  c10::Allocator& inner_;
};

[[maybe_unused]] const bool installed = [] {
  c10::SetCPUAllocator(&CountingAllocator::instance(), /*priority=*/1);
  return true;
}();

}  // namespace

std::int64_t bench_live_bytes() { return live_bytes; }
void bench_forget_peak() { peak_bytes = live_bytes.load(); }
std::int64_t bench_peak_bytes() { return peak_bytes; }
