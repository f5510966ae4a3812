// SPDX-License-Identifier: MIT
// Assigns a snapshot's tensors to blocks of pinned memory (staging.hpp) before these are allocated, several
// tensors to a block, up to a maximum size of a block. Computes sizes and offsets only.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace looptorch::detail {

/// Assigns by first fit: each allocation goes into the first block with room for it. `add` accepts only sizes
/// for which `fits` is true.
class BlockPlan {
 public:
  struct Allocation {
    std::size_t block = 0, offset = 0;
  };

  explicit BlockPlan(std::size_t max_bytes) : max_bytes_(max_bytes) {}

  [[nodiscard]] bool fits(std::size_t bytes) const { return bytes <= max_bytes_; }

  Allocation add(std::size_t bytes) {
    auto block = std::find_if(used_.begin(), used_.end(),
                              [&](std::size_t used) { return bytes <= max_bytes_ - used; });
    if (block == used_.end()) block = used_.insert(block, 0);
    const Allocation allocation{static_cast<std::size_t>(block - used_.begin()), *block};
    *block += bytes;
    return allocation;
  }

  /// Returns the bytes that each block needs.
  [[nodiscard]] const std::vector<std::size_t>& sizes() const { return used_; }

 private:
  std::size_t max_bytes_;
  std::vector<std::size_t> used_;
};

}  // namespace looptorch::detail
