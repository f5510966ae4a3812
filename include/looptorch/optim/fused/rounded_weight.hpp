// SPDX-License-Identifier: MIT
// Changes weights by tensor operations, for optimizers that have no kernel for a device or dtype. 16-bit
// weights are rounded stochastically, so that changes smaller than half the spacing of 16-bit numbers are not
// lost.
#pragma once

#include <looptorch/base/random.hpp>
#include <looptorch/optim/fused/fused_call.hpp>
#include <looptorch/optim/narrow/rounded_sum.hpp>

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/where.h>

#include <cstddef>
#include <cstdint>

namespace looptorch::detail {

/// Subtracts `change` from `weight`, unless found_inf is set, which is tested on the device. `weight` must be
/// non-overlapping and dense. On a CPU the update's number and `salt` seed the random bits of the rounding.
inline void subtract_rounded(const at::Tensor& weight, at::Tensor change, const FusedFactors& factors,
                             const at::Tensor& step, std::int64_t salt) {
  if (factors.found_inf) change = at::where(factors.found_inf->ne(0), 0.0, change);
  if (!is_narrow(weight)) {
    weight.copy_(weight - change);
  } else if (weight.is_cpu()) {
    const auto update = static_cast<std::uint64_t>(*step.const_data_ptr<double>());
    add_rounded(weight, change.neg_(), derive_seed(update, static_cast<std::uint64_t>(salt)));
  } else {
    add_rounded_by(weight, change.neg_(), default_generator(weight.device()));
  }
}

/// Returns 8 random bits for each element. On a CPU they are those of PlainBlock in
/// kernels/adamw_8bit_kernels.hpp.
[[nodiscard]] inline at::Tensor corrected_noise(const at::Tensor& weight, const at::Tensor& step) {
  if (!weight.is_cpu()) return at::randint(1 << 8, weight.sizes(), weight.options().dtype(at::kInt));
  const std::uint64_t seed = derive_seed(static_cast<std::uint64_t>(*step.const_data_ptr<double>()), 0);
  const at::Tensor noise = at::empty_like(weight, at::kInt);
  auto* const words = noise.mutable_data_ptr<std::int32_t>();
  for (std::int64_t i = 0; i < noise.numel(); ++i) {
    const auto element = static_cast<std::size_t>(i) % kBlockElements;
    const std::uint64_t random = block_word(seed, static_cast<std::uint64_t>(i) / kBlockElements);
    words[i] = static_cast<std::int32_t>((kElementWords<0, 16>[element] ^ (random & 0xFFFF)) >> 8);
  }
  return noise;
}

/// Returns a fp32 weight from its bf16 number, widened, and the 8 bits that it lacks.
[[nodiscard]] inline at::Tensor corrected_weight(const at::Tensor& wide, const at::Tensor& lost) {
  return (wide.view(at::kInt) + lost.to(at::kInt) * 256).view(at::kFloat);
}

/// Replaces a bf16 weight and the 8 extra bits that are stored for it by `wide`, fp32, unless the device
/// finds the overflow flag set. On a CPU the rounding's bits follow from the number of the update.
inline void split_corrected(const at::Tensor& weight, const at::Tensor& lost, const at::Tensor& wide,
                            const FusedFactors& factors, const at::Tensor& step) {
  const at::Tensor bits =
      (with_one_nan(wide).view(at::kInt) + corrected_noise(weight, step)).bitwise_and_(~0xFF);
  const at::Tensor narrow = (bits + 0x8000).bitwise_and_(~0xFFFF);
  factors.replace(lost, (bits - narrow).bitwise_right_shift_(8).to(at::kChar));
  factors.replace(weight, narrow.view(at::kFloat));
}

}  // namespace looptorch::detail
