// SPDX-License-Identifier: MIT
// Places things of known sizes into blocks of bounded size, before any block is allocated.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace looptorch::detail {

/// First fit: each thing goes into the first block with room for it. One that is larger than a block may be
/// has no place here; ask `fits` first.
class BlockPlan {
 public:
  struct Place {
    std::size_t block = 0, offset = 0;
  };

  explicit BlockPlan(std::size_t max_bytes) : max_bytes_(max_bytes) {}

  [[nodiscard]] bool fits(std::size_t bytes) const { return bytes <= max_bytes_; }

  Place add(std::size_t bytes) {
    auto block = std::find_if(used_.begin(), used_.end(),
                              [&](std::size_t used) { return bytes <= max_bytes_ - used; });
    if (block == used_.end()) block = used_.insert(block, 0);
    const Place place{static_cast<std::size_t>(block - used_.begin()), *block};
    *block += bytes;
    return place;
  }

  /// The bytes that each block needs.
  [[nodiscard]] const std::vector<std::size_t>& sizes() const { return used_; }

 private:
  std::size_t max_bytes_;
  std::vector<std::size_t> used_;
};

}  // namespace looptorch::detail
