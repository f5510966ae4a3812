// SPDX-License-Identifier: MIT
// Allocates memory directly before or behind a page that cannot be accessed, so that an access beyond it
// faults.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>

namespace looptorch::testing {

/// Pages between two that cannot be touched.
class GuardedPages {
 public:
  /// Places `size` bytes so that they end at the guard, at a multiple of `alignment`, or begin behind one.
  GuardedPages(std::size_t size, std::size_t alignment, bool at_end) : size_(size) {
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    const std::size_t inside = (size + page - 1) / page * page;
    bytes_ = inside + 2 * page;
    base_ = static_cast<char*>(
        ::mmap(nullptr, bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    if (base_ == MAP_FAILED) throw std::bad_alloc();
    if (inside > 0) ::mprotect(base_ + page, inside, PROT_READ | PROT_WRITE);
    const std::size_t slack = at_end ? (inside - size) / alignment * alignment : 0;
    data_ = base_ + page + slack;
  }
  GuardedPages(const GuardedPages&) = delete;
  GuardedPages& operator=(const GuardedPages&) = delete;
  ~GuardedPages() { ::munmap(base_, bytes_); }

  [[nodiscard]] char* data() const { return data_; }
  [[nodiscard]] std::size_t size() const { return size_; }

 private:
  std::size_t size_, bytes_;
  char *base_, *data_;
};

/// A copy of some bytes that ends at a guard.
class GuardedCopy {
 public:
  GuardedCopy(const void* data, std::size_t size) : pages_(size, 8, true) {
    std::memcpy(pages_.data(), data, size);
  }
  [[nodiscard]] const void* data() const { return pages_.data(); }

 private:
  GuardedPages pages_;
};

/// While one lives the CPU's tensors are allocated between guards: one in three begins behind one, one ends
/// at one exactly, and one begins at a multiple of 16 bytes before it.
class GuardedTensors final : public c10::Allocator {
 public:
  GuardedTensors() : before_(c10::GetAllocator(c10::kCPU)) { c10::SetAllocator(c10::kCPU, this, kPriority); }
  ~GuardedTensors() { c10::SetAllocator(c10::kCPU, before_, kPriority); }
  GuardedTensors(const GuardedTensors&) = delete;
  GuardedTensors& operator=(const GuardedTensors&) = delete;

  c10::DataPtr allocate(std::size_t size) override {
    const unsigned number = number_++;
    auto* const pages = new GuardedPages(size, number % 3 == 1 ? 1 : 16, number % 3 != 0);
    return {pages->data(), pages, &free_pages, c10::Device(c10::kCPU)};
  }
  void copy_data(void* to, const void* from, std::size_t size) const override { std::memcpy(to, from, size); }

 private:
  static constexpr std::uint8_t kPriority = 100;
  static void free_pages(void* pages) { delete static_cast<GuardedPages*>(pages); }

  c10::Allocator* before_;
  inline static std::atomic<unsigned> number_ = 0;
};

}  // namespace looptorch::testing
