// SPDX-License-Identifier: MIT
// Runs AdamWBf16's step as one kernel for hundreds of parameters. Weights may be fp32, fp16 or bf16.
// 16-bit weights are rounded stochastically, as in the CPU's loop (optim/narrow/bf16_loop.hpp); with `exact`,
// bf16 weights keep the bits that rounding loses. Results differ from the CPU's only in the last bits of fp32
// arithmetic.
#pragma once

#include <looptorch/base/device/kernel_source.hpp>
#include <looptorch/optim/kernels/adamw_table.hpp>
#include <looptorch/optim/kernels/block_code.hpp>

namespace looptorch::detail {

inline constexpr const char* kAdamWBf16Code = R"cuda(
enum Kind { kSingle, kRounded, kSplit };  // fp32 weights; 16-bit weights; bf16 weights and their lost bits

template <Kind kKind, class Stored>
struct Bf16Block {
  Stored* weights;
  const Stored* gradients;
  u16 *first, *second, *lost;
  u64 number;  // of this update
  Numbers rule;
  // Random words of this thread's elements. The lower half of `of_moments` is for the first moment, the upper one for
  // the second.
  u32 of_moments[8], of_weight[8];

  LT_INLINE Bf16Block(const Entry& entry, float step, const Numbers& numbers, u32 lane)
      : weights((Stored*)entry.weights), gradients((const Stored*)entry.gradients), first((u16*)entry.first),
        second((u16*)entry.second), lost((u16*)entry.lost), number((u64)step), rule(numbers) {
    for (int i = 0; i < 8; ++i) {
      const u32 element = element_of(i, lane);
      of_moments[i] = element_word<0, 16>(element) | element_word<1, 16>(element) << 16;
      of_weight[i] = kKind == kRounded ? element_word<2, 16>(element) : 0u;
    }
  }

  template <bool kFull>
  LT_INLINE void update(u64 at, u64 block, u32 lane, int size) const {
    float weight[2][4], gradient[2][4], mean[2][4], square[2][4];
    float rest[2][4] = {};  // lost bits in the upper half
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int offset = offset_of(h, lane), count = size - offset;
      load<kFull>(weights + at + offset, count, weight[h]), load<kFull>(gradients + at + offset, count, gradient[h]);
      load<kFull>(first + at + offset, count, mean[h]), load<kFull>(second + at + offset, count, square[h]);
      if (kKind == kSplit) load<kFull>(lost + at + offset, count, rest[h]);
    }
    const u64 random = block_word(number, block);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      u32 for_first[4], for_second[4], for_weight[4];
      u32 rest_bits[4] = {};
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float slope = gradient[h][j] * rule.gradient_factor;
        mean[h][j] = rule.first(mean[h][j], slope), square[h][j] = rule.second(square[h][j], slope);
        const float before = kKind == kSplit ? joined(weight[h][j], rest[h][j]) : weight[h][j];
        weight[h][j] = rule.weight(before, mean[h][j], quick_root(square[h][j]));
        if (kKind == kSplit) rest_bits[j] = split(weight[h][j]);
        const u32 noise = of_moments[h * 4 + j] ^ (u32)random;
        for_first[j] = noise & 0xFFFFu, for_second[j] = noise >> 16;
        for_weight[j] = kKind == kRounded ? of_weight[h * 4 + j] ^ low_bits(random >> 32, 16) : 0u;
      }
      const int offset = offset_of(h, lane), count = size - offset;
      store<kFull>(first + at + offset, count, mean[h], for_first);
      store<kFull>(second + at + offset, count, square[h], for_second);
      store<kFull>(weights + at + offset, count, weight[h], for_weight);
      if (kKind == kSplit) store_upper<kFull>(lost + at + offset, count, rest_bits);
    }
  }

 private:
  static LT_INLINE float joined(float weight, float rest) {
    return number_of(bits_of(weight) + (u32)((int)bits_of(rest) >> 16));
  }
  // Rounds to the nearest. Returns what that lost, in the upper half.
  static LT_INLINE u32 split(float& weight) {
    const u32 bits = bits_to_round(weight), narrow = (bits + 0x8000u) & 0xFFFF0000u;
    weight = number_of(narrow);
    return (bits - narrow) << 16;
  }
};

template <class Stored>
LT_INLINE void adamw_bf16(const Table& table) {
  update_parameter(table, [](const Entry& entry, float step, const Numbers& numbers, u32 lane, u32 thread_block) {
    constexpr Kind kPlain = sizeof(Stored) == 2 ? kRounded : kSingle, kExact = kIsBf16<Stored> ? kSplit : kPlain;
    if (kIsBf16<Stored> && entry.lost)
      for_blocks_of_warp(Bf16Block<kExact, Stored>(entry, step, numbers, lane), entry.size, entry.aligned, thread_block);
    else
      for_blocks_of_warp(Bf16Block<kPlain, Stored>(entry, step, numbers, lane), entry.size, entry.aligned, thread_block);
  });
}

extern "C" __global__ void __launch_bounds__(256, 3) adamw_bf16_fp32(LT_TABLE(Table) table) {
  adamw_bf16<float>(table);
}
extern "C" __global__ void __launch_bounds__(256, 3) adamw_bf16_bf16(LT_TABLE(Table) table) {
  adamw_bf16<u16>(table);
}
extern "C" __global__ void __launch_bounds__(256, 3) adamw_bf16_fp16(LT_TABLE(Table) table) {
  adamw_bf16<Half>(table);
}
)cuda";

inline constexpr KernelSource kAdamWBf16Source{"AdamWBf16",
                                               {kBlockCode, kAdamWStructs, kAdamWCode, kAdamWBf16Code},
                                               AdamWTable::kHeaderBytes,
                                               AdamWTable::kEntryBytes};

}  // namespace looptorch::detail
