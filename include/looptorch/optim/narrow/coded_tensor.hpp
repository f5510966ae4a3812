// SPDX-License-Identifier: MIT
// Encodes and decodes AdamW8bit's moments (block_codes.hpp) with tensor operations, for devices without a
// kernel and for tests. Slower than the CPU loop; never waits for the device.
#pragma once

#include <looptorch/optim/narrow/block_codes.hpp>

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/where.h>

#include <cstdint>
#include <vector>

namespace looptorch::detail {

/// Returns how many blocks hold the elements of a parameter: the shape of its scales.
[[nodiscard]] inline std::vector<std::int64_t> block_count(const at::Tensor& parameter) {
  constexpr auto kCount = static_cast<std::int64_t>(kBlockElements);
  return {(parameter.numel() + kCount - 1) / kCount};
}

/// Codes (uint8) in the shape of the coded tensor, and the largest number of each block (fp32, [blocks]).
struct CodedTensor {
  at::Tensor codes, scales;
};

/// Returns the elements as [blocks, 256], filled up with zeros.
[[nodiscard]] inline at::Tensor in_blocks(const at::Tensor& tensor) {
  constexpr auto kCount = static_cast<std::int64_t>(kBlockElements);
  const std::int64_t surplus = tensor.numel() % kCount;
  const at::Tensor flat = tensor.flatten();
  return (surplus == 0 ? flat : at::constant_pad_nd(flat, {0, kCount - surplus})).view({-1, kCount});
}

/// Returns the first elements of [blocks, 256] in the shape of `like`.
[[nodiscard]] inline at::Tensor from_blocks(const at::Tensor& blocks, const at::Tensor& like) {
  return blocks.flatten().narrow(0, 0, like.numel()).view(like.sizes());
}

/// Returns the numbers that were coded, fp32.
template <class Code>
[[nodiscard]] at::Tensor decode_tensor(const CodedTensor& coded) {
  const at::Tensor codes = in_blocks(coded.codes).to(at::kInt);
  const at::Tensor bits = codes.bitwise_and(static_cast<int>(Code::kMask))
                              .mul(1 << Code::kDropped)
                              .add(static_cast<int>(Code::kBase));
  const at::Tensor sizes = (bits.view(at::kFloat) - 2) * (coded.scales / Code::kLargest).unsqueeze(1);
  return from_blocks(at::where(codes.gt(static_cast<int>(Code::kMask)), -sizes, sizes), coded.codes);
}

/// Codes fp32 numbers. `noise`, int32 [blocks, 256], has `Code::kDropped` random bits a number; without it
/// they come from the device's generator.
template <class Code>
[[nodiscard]] CodedTensor encode_tensor(const at::Tensor& numbers, at::Tensor noise = {}) {
  const at::Tensor blocks = in_blocks(numbers), sizes = blocks.abs();
  const at::Tensor scales = at::amax(sizes, {1}, /*keepdim=*/true);
  if (!noise.defined())
    noise = at::randint(1 << Code::kDropped, blocks.sizes(), blocks.options().dtype(at::kInt));
  const at::Tensor factors = at::where(scales.gt(0), Code::kLargest / scales, 0.0);
  const at::Tensor bits = (sizes * factors).clamp_min(Code::kLeast).add(2).view(at::kInt).add(noise);
  const at::Tensor codes =
      bits.bitwise_right_shift(Code::kDropped).bitwise_and(static_cast<int>(Code::kMask)) +
      blocks.lt(0).to(at::kInt).mul(static_cast<int>(Code::kMask) + 1);
  return {from_blocks(codes.to(at::kByte), numbers), scales.squeeze(1)};
}

}  // namespace looptorch::detail
