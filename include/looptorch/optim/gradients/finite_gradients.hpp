// SPDX-License-Identifier: MIT
// Checks a list of gradients for NaN or infinity, in one pass over them. On a CPU this is as fast as memory
// can be read; on a device the host waits for the result.
#pragma once

#include <looptorch/optim/gradients/gradients.hpp>
#include <looptorch/optim/gradients/norms.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/isfinite.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace looptorch::detail {

/// True if any number, given as bits, has all bits of `exponent` set, as NaN and infinity do. A compile-time
/// `size` lets the compiler vectorise.
template <class Bits>
[[nodiscard]] inline bool any_of_block(const Bits* bits, std::size_t size, Bits exponent) {
  Bits any = 0;
  for (std::size_t i = 0; i < size; ++i) any |= static_cast<Bits>((bits[i] & exponent) == exponent);
  return any != 0;
}

/// True if any of `count` numbers has the exponent. Looks at large blocks, then at small ones, then at the
/// rest.
template <class Bits>
[[nodiscard]] bool any_with_exponent(const Bits* bits, std::size_t count, Bits exponent) {
  constexpr std::size_t kLarge = 1024, kSmall = 32;
  for (; count >= kLarge; bits += kLarge, count -= kLarge)
    if (any_of_block(bits, kLarge, exponent)) return true;
  for (; count >= kSmall; bits += kSmall, count -= kSmall)
    if (any_of_block(bits, kSmall, exponent)) return true;
  return any_of_block(bits, count, exponent);
}

/// True if the elements of a gradient lie on the host without gaps, in fp32 or fp64.
[[nodiscard]] inline bool is_dense_on_host(const at::Tensor& gradient) {
  return gradient.is_cpu() && gradient.layout() == at::kStrided && gradient.is_non_overlapping_and_dense() &&
         (gradient.scalar_type() == at::kFloat || gradient.scalar_type() == at::kDouble);
}

[[nodiscard]] inline bool has_non_finite(const at::Tensor& plain) {
  const auto count = static_cast<std::size_t>(plain.numel());
  const void* data = plain.const_data_ptr();
  return plain.scalar_type() == at::kFloat
             ? any_with_exponent(static_cast<const std::uint32_t*>(data), count, std::uint32_t{0x7F800000})
             : any_with_exponent(static_cast<const std::uint64_t*>(data), count,
                                 std::uint64_t{0x7FF0000000000000});
}

/// Returns the p-norm of each gradient, all of one device, computed in at least fp32. If a sparse
/// gradient holds a row several times, the sum counts.
[[nodiscard]] inline std::vector<at::Tensor> norms_of(at::TensorList gradients, double p) {
  std::vector<at::Tensor> dense;
  for (const at::Tensor& gradient : gradients)
    dense.push_back(gradient.layout() == at::kSparse ? gradient.coalesce()._values() : gradient);
  return norms_of_each(dense, p);
}

/// Returns the 2-norm of all gradients together; waits for their devices.
[[nodiscard]] inline double norm_of(const std::vector<at::Tensor>& gradients) {
  at::NoGradGuard no_gradients;
  double squares = 0;
  for_each_alike(gradients, [&](at::TensorList on_one) {
    for (const at::Tensor& norm : norms_of(on_one, 2)) squares += std::pow(norm.item<double>(), 2);
  });
  return std::sqrt(squares);
}

/// True if the largest number of one of the gradients is NaN or infinite.
[[nodiscard]] inline bool largest_is_non_finite(const std::vector<at::Tensor>& gradients) {
  at::NoGradGuard no_gradients;
  bool found = false;
  for_each_alike(gradients, [&](at::TensorList on_one) {
    const at::Tensor largest = joined_norm(norms_of(on_one, HUGE_VAL), HUGE_VAL);
    found |= !at::isfinite(largest).item<bool>();
  });
  return found;
}

/// True if one of the gradients holds NaN or infinity; waits for their devices.
[[nodiscard]] inline bool any_non_finite(const std::vector<at::Tensor>& gradients) {
  std::vector<at::Tensor> others;
  for (const at::Tensor& gradient : gradients) {
    if (gradient.is_meta() || gradient.numel() == 0) continue;
    if (!is_dense_on_host(gradient))
      others.push_back(gradient);
    else if (has_non_finite(gradient))
      return true;
  }
  return !others.empty() && largest_is_non_finite(others);
}

}  // namespace looptorch::detail
