// SPDX-License-Identifier: MIT
// Sums in bf16 that lose nothing on average: each is computed in fp32 and rounded stochastically. On a CPU
// and on NVIDIA's GPUs one pass over the memory; on other devices five tensor operations.
#pragma once

#include <looptorch/base/device/generator_state.hpp>
#include <looptorch/base/device/kernel_runner.hpp>
#include <looptorch/optim/kernels/rounded_sum_kernels.hpp>
#include <looptorch/optim/narrow/bf16_loop.hpp>
#include <looptorch/optim/narrow/lanes.hpp>

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/randint.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace looptorch::detail {

/// The memory of a sum and of what is added to it, fp32 or bf16.
template <class Addend>
struct RoundedSumLoop {
  std::uint16_t* sums;
  const Addend* addends;
  std::int64_t size;
  std::uint64_t seed;  ///< The rounding's bits follow from it and from a block's position.

  /// Adds blocks [begin, end).
  [[gnu::always_inline]] void run(std::int64_t begin, std::int64_t end) const {
    constexpr auto kCount = static_cast<std::int64_t>(kLanes);
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
    for (std::int64_t i = 0; i < count; ++i)
      sum[i] = round_bf16(widen_bf16(sum[i]) + widen(addend[i]),
                          kLaneWords<0, 16>[static_cast<std::size_t>(i)] ^ random);
  }
  [[gnu::always_inline]] static float widen(float number) { return number; }
  [[gnu::always_inline]] static float widen(std::uint16_t bits) { return widen_bf16(bits); }
};

template <class Addend>
void add_rounded_on_host(const at::Tensor& sum, const at::Tensor& addend, std::uint64_t seed) {
  const RoundedSumLoop<Addend> loop{static_cast<std::uint16_t*>(sum.mutable_data_ptr()),
                                    static_cast<const Addend*>(addend.const_data_ptr()), sum.numel(), seed};
  constexpr auto kCount = static_cast<std::int64_t>(kLanes);
  constexpr std::int64_t kBlocksATask = 64;
  at::parallel_for(0, (sum.numel() + kCount - 1) / kCount, kBlocksATask,
                   [&loop](std::int64_t begin, std::int64_t end) { run_widest(loop, begin, end); });
}

/// Adds to `sum`, bf16, by tensor operations; the rounding's bits are the generator's.
inline void add_rounded_by(const at::Tensor& sum, const at::Tensor& addend, const at::Generator& generator) {
  const at::Tensor exact = sum.to(at::kFloat).add_(addend);
  const at::Tensor noise = at::randint(1 << 16, exact.sizes(), generator, exact.options().dtype(at::kInt));
  sum.copy_(noise.add_(exact.view(at::kInt)).bitwise_and_(~0xFFFF).view(at::kFloat));
}

/// Adds to `sum`, bf16 and without gaps in memory. The rounding's bits follow from `seed`: the same ones on a
/// CPU and in the kernel, and those of a generator of its own where tensor operations take its place.
inline void add_rounded(const at::Tensor& sum, const at::Tensor& addend, std::uint64_t seed) {
  const ReadyKernels ready = ready_kernels(kRoundedSumSource, sum.device());
  if (!ready && !sum.is_cpu()) {
    at::Generator generator = copy_of(default_generator(sum.device()));
    generator.set_current_seed(seed);
    return add_rounded_by(sum, addend, generator);
  }
  const bool narrow = addend.scalar_type() == at::kBFloat16;
  at::Tensor alike = addend;
  if (addend.strides() != sum.strides() || (!narrow && addend.scalar_type() != at::kFloat))
    alike = at::empty_like(sum, narrow ? at::kBFloat16 : at::kFloat).copy_(addend);
  if (ready) return add_rounded_by_kernel(sum, alike, seed, ready);
  narrow ? add_rounded_on_host<std::uint16_t>(sum, alike, seed)
         : add_rounded_on_host<float>(sum, alike, seed);
}

}  // namespace looptorch::detail
