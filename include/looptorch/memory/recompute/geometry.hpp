// SPDX-License-Identifier: MIT
// Describes the part of a storage that a tensor reads: sizes, strides, offset, element type, and whether
// values are conjugated or negated.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <cstddef>
#include <cstdint>

namespace looptorch::detail {

struct Geometry {
  Geometry() = default;
  explicit Geometry(const at::Tensor& tensor)
      : sizes(tensor.sizes()),
        strides(tensor.strides()),
        offset(tensor.storage_offset()),
        type(tensor.scalar_type()),
        is_conjugate(tensor.is_conj()),
        is_negative(tensor.is_neg()) {}
  bool operator==(const Geometry&) const = default;

  /// Returns the number of elements of the storage from the tensor's first to its last.
  [[nodiscard]] std::int64_t extent() const {
    std::int64_t last = 0;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      if (sizes[i] == 0) return 0;
      last += (sizes[i] - 1) * strides[i];
    }
    return last + 1;
  }
  [[nodiscard]] bool lies_within(const Geometry& other) const {
    return offset >= other.offset && offset + extent() <= other.offset + other.extent();
  }

  c10::SmallVector<std::int64_t, 5> sizes, strides;
  std::int64_t offset = 0;
  at::ScalarType type = at::kFloat;
  bool is_conjugate = false,
       is_negative = false;  ///< The values are the conjugate, the negative of those in memory.
};

}  // namespace looptorch::detail
