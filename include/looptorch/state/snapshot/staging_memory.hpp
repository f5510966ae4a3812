// SPDX-License-Identifier: MIT
// One block of host memory, into which a snapshot's tensors are copied before they are written (staging.hpp).
// It grows and is reused. It is pinned if devices copy into it; otherwise it uses huge pages if the system
// has them.
#pragma once

#include <looptorch/base/process/terminal.hpp>
#include <looptorch/state/snapshot/snapshot_error.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include <sys/mman.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <system_error>

namespace looptorch::detail {

class StagingMemory {
 public:
  StagingMemory() = default;
  StagingMemory(const StagingMemory&) = delete;
  StagingMemory& operator=(const StagingMemory&) = delete;
  ~StagingMemory() { release(); }

  /// Reserves that many pageable bytes. Throws SnapshotError if there is not enough memory.
  void reserve(std::size_t bytes) {
    if (bytes > size_) map(bytes);
  }

  /// Reserves that many bytes in pinned memory. If none can be had the block is pageable, and copies from a
  /// device then block the thread that begins them.
  void reserve_pinned(std::size_t bytes) {
    if (bytes <= size_) return;
    release();
    try {
      pinned_ =
          at::empty({static_cast<std::int64_t>(bytes)}, at::TensorOptions(at::kByte).pinned_memory(true));
    } catch (const c10::Error& error) {
      std::fputs(clearing_code(stderr), stderr);
      TORCH_WARN_ONCE("looptorch: snapshots are copied through pageable memory, which takes longer: ",
                      error.what_without_backtrace());
      return map(bytes);
    }
    data_ = static_cast<char*>(pinned_.mutable_data_ptr());
    size_ = bytes;
  }

  /// Touches every page, so that the page faults happen now.
  void touch() const {
    constexpr std::size_t kPage = 4096;
    for (std::size_t at = 0; at < size_; at += kPage) data_[at] = 0;
  }

  [[nodiscard]] char* data() const { return data_; }
  [[nodiscard]] bool is_pinned() const { return pinned_.defined(); }

 private:
  /// Grows the mapping; existing pages stay.
  void map(std::size_t bytes) {
    constexpr int kAccess = PROT_READ | PROT_WRITE, kKind = MAP_PRIVATE | MAP_ANONYMOUS;
    void* memory =
        data_ ? ::mremap(data_, size_, bytes, MREMAP_MAYMOVE) : ::mmap(nullptr, bytes, kAccess, kKind, -1, 0);
    if (memory == MAP_FAILED)
      throw SnapshotError(
          message("no memory for a snapshot of ", bytes, " bytes: ", std::generic_category().message(errno)));
    data_ = static_cast<char*>(memory);
    size_ = bytes;
    (void)::madvise(data_, size_, MADV_HUGEPAGE);  // failure costs only speed
  }

  void release() {
    if (data_ && !pinned_.defined()) ::munmap(data_, size_);
    pinned_ = at::Tensor();
    data_ = nullptr;
    size_ = 0;
  }

  at::Tensor pinned_;
  char* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace looptorch::detail
