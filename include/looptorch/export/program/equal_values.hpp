// SPDX-License-Identifier: MIT
// Compares tensors, and constant arguments of operators; NaN equals NaN. The export uses it to find what
// differs between two recordings of a model, and to check the results of the exported program.
#pragma once

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <bit>
#include <cstdint>

namespace looptorch::detail {

/// True if all elements are the same, NaN as NaN.
[[nodiscard]] inline bool has_equal_values(const at::Tensor& a, const at::Tensor& b) {
  if (a.sizes() != b.sizes() || a.scalar_type() != b.scalar_type()) return false;
  if (at::equal(a, b)) return true;
  return a.is_floating_point() &&
         at::logical_or(a.eq(b), a.isnan().logical_and(b.isnan())).all().item<bool>();
}

/// True for equal constants; for numbers, if they have the same bits.
[[nodiscard]] inline bool is_equal_constant(const c10::IValue& a, const c10::IValue& b) {
  if (a.isDouble() && b.isDouble())
    return std::bit_cast<std::uint64_t>(a.toDouble()) == std::bit_cast<std::uint64_t>(b.toDouble());
  return a == b;
}

}  // namespace looptorch::detail
