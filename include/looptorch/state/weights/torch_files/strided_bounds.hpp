// SPDX-License-Identifier: MIT
// Checks that a tensor lies within its file's data, by the offset, sizes and strides that the file gives.
// Readers of torch.save's files and of .pt2 files call it, since such files may be hostile.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace looptorch::detail {

/// True if a tensor of these sizes and strides, none of which may be negative, that begins at element
/// `offset` lies within `available` elements. False if the numbers of sizes and strides differ, or if the
/// elements are more than 64 bits count.
[[nodiscard]] inline bool lies_within(std::int64_t offset, const std::vector<std::int64_t>& sizes,
                                      const std::vector<std::int64_t>& strides, std::int64_t available) {
  if (sizes.size() != strides.size() || offset < 0 || offset > available) return false;
  std::int64_t last = offset, elements = 1;
  for (const std::int64_t size : sizes)
    if (__builtin_mul_overflow(elements, std::max<std::int64_t>(size, 1), &elements)) return false;
  if (std::ranges::find(sizes, 0) != sizes.end()) return true;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    std::int64_t reach;
    if (__builtin_mul_overflow(sizes[i] - 1, strides[i], &reach) ||
        __builtin_add_overflow(last, reach, &last))
      return false;
  }
  return last < available;
}

}  // namespace looptorch::detail
