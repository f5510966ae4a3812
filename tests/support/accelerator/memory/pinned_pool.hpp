// SPDX-License-Identifier: MIT
// A cache of pinned host memory, as CUDA has. Sizes are powers of two, of at least a page. A block that
// copies still read is not given out again.
#pragma once

#include "support/accelerator/order/clock.hpp"

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

namespace looptorch_test::accelerator {

struct HostBlock {
  char* data;
  std::size_t size;
  std::size_t requested = 0;
  bool live = false;
  std::bitset<kStreams> recorded;  // streams whose copies the allocator knows of
  int readers = 0;                 // uploads that have not run and keep a block that was freed

  [[nodiscard]] char* end() const { return data + size; }
};

class PinnedPool {
 public:
  /// Returns a block that holds NaN, or nullptr if the system has no memory.
  HostBlock* allocate(std::size_t bytes);
  /// Ends a block's life. It comes back by `recycle`, at once if it has no readers.
  void release(HostBlock& block);
  void recycle(HostBlock& block);

  /// Returns the live block that holds an address, or nullptr.
  [[nodiscard]] HostBlock* find(const void* address) const;
  [[nodiscard]] std::int64_t bytes_in_use() const { return bytes_in_use_; }

 private:
  std::map<const char*, std::unique_ptr<HostBlock>> blocks_;
  std::map<std::size_t, std::vector<HostBlock*>> free_;  // by size
  std::int64_t bytes_in_use_ = 0;
};

}  // namespace looptorch_test::accelerator
