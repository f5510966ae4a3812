// SPDX-License-Identifier: MIT
// Adds gradients to sums in bf16 or fp16, for UpdateInBackward<SumsInBf16>: adds in fp32 and rounds
// stochastically, so that the sums have no bias. Takes one pass over the memory on a CPU, and on NVIDIA's
// GPUs for bf16; otherwise several tensor operations.
#pragma once

#include <looptorch/base/device/generator_state.hpp>
#include <looptorch/base/device/kernel_runner.hpp>
#include <looptorch/optim/kernels/rounded_sum_kernels.hpp>
#include <looptorch/optim/narrow/block_loop.hpp>
#include <looptorch/optim/narrow/stored_weights.hpp>

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/copysign.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/nan_to_num.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/where.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>

namespace looptorch::detail {

/// Pointers for one pass. `Sum` is the sum's stored type, `Bf16Weight` or `Fp16Weight`. `Addend` is the
/// gradient's: float, or std::uint16_t for the bits of bf16.
template <class Sum, class Addend>
struct RoundedSumLoop {
  std::uint16_t* sums;
  const Addend* addends;
  std::int64_t size;
  std::uint64_t seed;  ///< The rounding's bits follow from it and from a block's position.

  /// Adds blocks [begin, end).
  [[gnu::always_inline]] void run(std::int64_t begin, std::int64_t end) const {
    constexpr auto kCount = static_cast<std::int64_t>(kBlockElements);
    for (std::int64_t block = begin; block < end; ++block) {
      const std::int64_t at = block * kCount, count = std::min(kCount, size - at);
      const auto random =
          static_cast<std::uint32_t>(block_word(seed, static_cast<std::uint64_t>(block)) & 0xFFFF);
      if (count == kCount)
        add(sums + at, addends + at, kCount, random);
      else
        add(sums + at, addends + at, count, random);
    }
  }

 private:
  [[gnu::always_inline]] static void add(std::uint16_t* __restrict sum, const Addend* __restrict addend,
                                         std::int64_t count, std::uint32_t random) {
    std::int16_t none = 0;
    for (std::int64_t i = 0; i < count; ++i)
      Sum::store(Sum::load(sum[i], 0) + widen(addend[i]),
                 kElementWords<0, 16>[static_cast<std::size_t>(i)] ^ random, sum[i], none);
  }
  [[gnu::always_inline]] static float widen(float number) { return number; }
  [[gnu::always_inline]] static float widen(std::uint16_t bits) { return widen_bf16(bits); }
};

template <class Sum, class Addend>
void add_rounded_on_host(const at::Tensor& sum, const at::Tensor& addend, std::uint64_t seed) {
  const RoundedSumLoop<Sum, Addend> loop{static_cast<std::uint16_t*>(sum.mutable_data_ptr()),
                                         static_cast<const Addend*>(addend.const_data_ptr()), sum.numel(),
                                         seed};
  constexpr auto kCount = static_cast<std::int64_t>(kBlockElements);
  constexpr std::int64_t kBlocksATask = 64;
  at::parallel_for(0, (sum.numel() + kCount - 1) / kCount, kBlocksATask,
                   [&loop](std::int64_t begin, std::int64_t end) { run_widest(loop, begin, end); });
}

/// Returns the fp32 numbers with one bit pattern for all NaNs, so that rounding may add to their bits
/// (`bits_to_round`).
[[nodiscard]] inline at::Tensor with_one_nan(const at::Tensor& numbers) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  return at::nan_to_num(numbers, std::numeric_limits<double>::quiet_NaN(), kInfinity, -kInfinity);
}

/// Rounds each fp32 number to one of its two neighbours in bf16 or fp16, chosen by `noise`: 16 random bits,
/// int32. Returns the rounded numbers in fp32.
[[nodiscard]] inline at::Tensor rounded_tensor(const at::Tensor& numbers, at::ScalarType type,
                                               const at::Tensor& noise) {
  const at::Tensor bits = with_one_nan(numbers).view(at::kInt);
  if (type == at::kBFloat16) return (bits + noise).bitwise_and_(~0xFFFF).view(at::kFloat);
  const at::Tensor random = noise.bitwise_right_shift(3);
  const at::Tensor normal = (bits + random).bitwise_and_(~0x1FFF).view(at::kFloat);
  const at::Tensor tiny = numbers.abs().mul_(0x1p24).add_(random, 0x1p-13).floor_().mul_(0x1p-24);
  return at::where(numbers.abs().lt(0x1p-14), at::copysign(tiny, numbers), normal);
}

/// Returns 16 random bits for each element.
[[nodiscard]] inline at::Tensor rounding_noise(const at::Tensor& numbers,
                                               const std::optional<at::Generator>& generator = {}) {
  return at::randint(1 << 16, numbers.sizes(), generator, numbers.options().dtype(at::kInt));
}

/// Adds to `sum`, bf16 or fp16, by tensor operations; draws the rounding's bits from `generator`.
inline void add_rounded_by(const at::Tensor& sum, const at::Tensor& addend, const at::Generator& generator) {
  const at::Tensor exact = sum.to(at::kFloat).add_(addend);
  sum.copy_(rounded_tensor(exact, sum.scalar_type(), rounding_noise(exact, generator)));
}

/// Adds to `sum`, which is bf16 or fp16, non-overlapping and dense. `seed` determines the random bits of the
/// rounding: the same on a CPU and in the kernel, others where tensor operations replace the kernel.
inline void add_rounded(const at::Tensor& sum, const at::Tensor& addend, std::uint64_t seed) {
  const bool is_fp16 = sum.scalar_type() == at::kHalf;  // there is no kernel for fp16
  const ReadyKernels ready = is_fp16 ? ReadyKernels{} : ready_kernels(kRoundedSumSource, sum.device());
  if (!ready && !sum.is_cpu()) {
    at::Generator generator = copy_of(default_generator(sum.device()));
    generator.set_current_seed(seed);
    return add_rounded_by(sum, addend, generator);
  }
  const bool narrow = addend.scalar_type() == at::kBFloat16 && !is_fp16;
  at::Tensor alike = addend;
  if (addend.strides() != sum.strides() || (!narrow && addend.scalar_type() != at::kFloat))
    alike = at::empty_like(sum, narrow ? at::kBFloat16 : at::kFloat).copy_(addend);
  if (ready) return add_rounded_by_kernel(sum, alike, seed, ready);
  const auto add = is_fp16  ? &add_rounded_on_host<Fp16Weight, float>
                   : narrow ? &add_rounded_on_host<Bf16Weight, std::uint16_t>
                            : &add_rounded_on_host<Bf16Weight, float>;
  add(sum, alike, seed);
}

}  // namespace looptorch::detail
