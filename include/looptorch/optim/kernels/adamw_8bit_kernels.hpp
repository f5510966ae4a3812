// SPDX-License-Identifier: MIT
// Runs AdamW8bit's step as one kernel for hundreds of parameters. Weights may be fp32, bf16 or fp16. A
// warp updates a block of 256 elements with its moments in registers: 16 bytes of memory traffic per element,
// or 10 with 16-bit weights. Moments are encoded (optim/narrow/block_codes.hpp) and
// rounded at random as in the CPU's loop (optim/narrow/eight_bit_loop.hpp); results differ from the CPU's
// only in the last bits of fp32 arithmetic.
#pragma once

#include <looptorch/base/device/kernel_source.hpp>
#include <looptorch/optim/kernels/adamw_table.hpp>
#include <looptorch/optim/kernels/block_code.hpp>

namespace looptorch::detail {

/// Codes as in optim/narrow/block_codes.hpp, `CodedBlock` for parameters whose moments are codes, and
/// `PlainBlock` for those with fp32 moments. Their table entries lack `first_scales`, the pointer to the
/// scales of the first moment's codes.
inline constexpr const char* kAdamW8bitCode = R"cuda(
template <int kBits, int kFraction>
struct OctaveCode {
  static constexpr int kDropped = 23 - kFraction;
  static constexpr u32 kBase = 0x40000000u, kMask = (1u << kBits) - 1;
  static LT_INLINE float smallest() { return number_of(kBase | 1u << kDropped) - 2.0f; }
  static LT_INLINE float largest() {
    return (number_of(kBase | kMask << kDropped) - 2.0f) * (1.0f - 9.5367431640625e-07f);
  }
  static LT_INLINE float decode(u32 code) { return number_of(kBase | code << kDropped) - 2.0f; }
  static LT_INLINE u32 encode(float number, u32 noise) { return (bits_of(number + 2.0f) + noise) >> kDropped; }
  static LT_INLINE float step_of(float scale) { return scale / largest(); }
  static LT_INLINE float factor_of(float scale) { return scale > 0.0f ? largest() / scale : 0.0f; }
};

struct SignedCode : OctaveCode<7, 3> {
  static LT_INLINE float decode(u32 code, float step) {
    return number_of(bits_of(OctaveCode<7, 3>::decode(code & kMask) * step) | (code << 24 & kSignBit));
  }
  static LT_INLINE u32 encode(float number, float factor, u32 noise) {
    const u32 bits = bits_of(number);
    const u32 size = OctaveCode<7, 3>::encode(number_of(bits & ~kSignBit) * factor, noise);
    return (size & kMask) | (bits & kSignBit) >> 24;
  }
};

struct RootCode : OctaveCode<8, 4> {
  static LT_INLINE float decode(u32 code, float step) { return OctaveCode<8, 4>::decode(code) * step; }
  static LT_INLINE u32 encode(float number, float factor, u32 noise) {
    const u32 size = larger(bits_of(number * factor), bits_of(smallest()));
    return OctaveCode<8, 4>::encode(number_of(size), noise) & 0xFFu;
  }
};

// fp32 weights; 16-bit weights; bf16 weights and 8 bits of what they lack, each rounded stochastically.
enum Kind { kSingle, kRounded, kCorrected };

// Widens weights by the bits that they lack, 8 each in `lost`.
LT_INLINE void join(float (&weight)[4], u32 lost) {
#pragma unroll
  for (int j = 0; j < 4; ++j) weight[j] = number_of(bits_of(weight[j]) + (u32)((int)(lost << (24 - 8 * j)) >> 24) * 256u);
}
// Rounds weights by 8 of 16 random bits each, and then to the nearest bf16 number. Returns what that lost.
LT_INLINE u32 split(float (&weight)[4], u32 (&noise)[4]) {
  u32 lost = 0;
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const u32 bits = (bits_to_round(weight[j]) + (noise[j] >> 8)) & ~0xFFu, narrow = (bits + 0x8000u) & 0xFFFF0000u;
    lost |= ((bits - narrow) >> 8 & 0xFFu) << (8 * j);
    weight[j] = number_of(narrow), noise[j] = 0;
  }
  return lost;
}

template <Kind kKind, class Stored>
struct CodedBlock {
  static constexpr bool kNarrow = kKind != kSingle;
  Stored* weights;
  const Stored* gradients;
  u8 *first_codes, *root_codes, *lost;
  float *first_scales, *root_scales;
  u64 number;  // of this update
  Numbers rule;
  u32 of_first[8], of_root[8], of_weight[8];  // random words of this thread's elements

  LT_INLINE CodedBlock(const Entry& entry, float step, const Numbers& numbers, u32 lane)
      : weights((Stored*)entry.weights), gradients((const Stored*)entry.gradients),
        first_codes((u8*)entry.first), root_codes((u8*)entry.second), lost((u8*)entry.lost),
        first_scales((float*)entry.first_scales), root_scales((float*)entry.second_scales),
        number((u64)step), rule(numbers) {
    for (int i = 0; i < 8; ++i) {
      const u32 element = element_of(i, lane);
      of_first[i] = element_word<0, SignedCode::kDropped>(element);
      of_root[i] = element_word<1, RootCode::kDropped>(element);
      of_weight[i] = kNarrow ? element_word<2, 16>(element) : 0u;
    }
  }

  template <bool kFull>
  LT_INLINE void update(u64 at, u64 block, u32 lane, int size) const {
    const float first_step = SignedCode::step_of(first_scales[block]);
    const float root_step = RootCode::step_of(root_scales[block]);
    float weight[2][4], gradient[2][4], first[2][4], root[2][4];
    u32 first_code[2], root_code[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int offset = offset_of(h, lane), count = size - offset;
      load<kFull>(weights + at + offset, count, weight[h]);
      load<kFull>(gradients + at + offset, count, gradient[h]);
      first_code[h] = load<kFull>(first_codes + at + offset, count);
      root_code[h] = load<kFull>(root_codes + at + offset, count);
      if (kKind == kCorrected) join(weight[h], load<kFull>(lost + at + offset, count));
    }
    const u64 random = block_word(number, block);
    const u32 for_weight = kNarrow ? low_bits(mix64(random), 16) : 0u;
    u32 largest_first = 0, largest_root = 0;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      u32 noise[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float slope = gradient[h][j] * rule.gradient_factor;
        const float old_root = RootCode::decode(byte_of(root_code[h], j), root_step);
        const float mean = rule.first(SignedCode::decode(byte_of(first_code[h], j), first_step), slope);
        const float scale = quick_root(rule.second(old_root * old_root, slope));
        weight[h][j] = rule.weight(weight[h][j], mean, scale);
        first[h][j] = mean, root[h][j] = scale;
        largest_first = larger(largest_first, bits_of(mean) & ~kSignBit);
        largest_root = larger(largest_root, bits_of(scale));
        noise[j] = of_weight[h * 4 + j] ^ for_weight;
      }
      const int offset = offset_of(h, lane);
      if (kKind == kCorrected) store<kFull>(lost + at + offset, size - offset, split(weight[h], noise));
      store<kFull>(weights + at + offset, size - offset, weight[h], noise);
    }
    const float first_scale = number_of(warp_largest(largest_first));
    const float root_scale = number_of(warp_largest(largest_root));
    store_codes<kFull, SignedCode>(first, first_scale, of_first, (u32)random, first_codes + at, lane, size);
    store_codes<kFull, RootCode>(root, root_scale, of_root, (u32)(random >> 32), root_codes + at, lane, size);
    __syncwarp();  // all lanes have read the scales
    if (lane == 0) first_scales[block] = first_scale, root_scales[block] = root_scale;
  }

 private:
  static LT_INLINE u32 byte_of(u32 codes, int j) { return codes >> (8 * j) & 0xFFu; }

  template <bool kFull, class Code>
  static LT_INLINE void store_codes(const float (&numbers)[2][4], float scale, const u32 (&words)[8], u32 random,
                                    u8* codes, u32 lane, int size) {
    const float factor = Code::factor_of(scale);
    const u32 shared = low_bits(random, Code::kDropped);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      u32 all = 0;
#pragma unroll
      for (int j = 0; j < 4; ++j)
        all |= Code::encode(numbers[h][j], factor, words[h * 4 + j] ^ shared) << (8 * j);
      const int offset = offset_of(h, lane);
      store<kFull>(codes + offset, size - offset, all);
    }
  }
};

// Moments in fp32: AdamW as at::_fused_adamw_ computes it, and a 16-bit weight rounded as by `subtract_rounded`.
template <Kind kKind, class Stored>
struct PlainBlock {
  static constexpr bool kNarrow = kKind != kSingle;
  Stored* weights;
  const Stored* gradients;
  float *first, *second;
  u8* lost;
  u64 seed;
  Numbers rule;
  u32 words[8];

  LT_INLINE PlainBlock(const Entry& entry, float step, const Numbers& numbers, u32 lane)
      : weights((Stored*)entry.weights), gradients((const Stored*)entry.gradients),
        first((float*)entry.first), second((float*)entry.second), lost((u8*)entry.lost),
        seed(derive_seed((u64)step, 0)), rule(numbers) {
    for (int i = 0; i < 8; ++i)
      words[i] = kNarrow ? element_word<0, 16>(element_of(i, lane)) : 0u;
  }

  template <bool kFull>
  LT_INLINE void update(u64 at, u64 block, u32 lane, int size) const {
    const u32 random = kNarrow ? low_bits(block_word(seed, block), 16) : 0u;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int offset = offset_of(h, lane), count = size - offset;
      float weight[4], gradient[4], mean[4], square[4];
      u32 noise[4];
      load<kFull>(weights + at + offset, count, weight), load<kFull>(gradients + at + offset, count, gradient);
      load<kFull>(first + at + offset, count, mean), load<kFull>(second + at + offset, count, square);
      if (kKind == kCorrected) join(weight, load<kFull>(lost + at + offset, count));
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float slope = gradient[j] * rule.gradient_factor;
        mean[j] = rule.first(mean[j], slope), square[j] = rule.second(square[j], slope);
        const float wide = rule.weight(weight[j], mean[j], sqrtf(square[j]));
        // `subtract_rounded` takes a difference, whose fp32 rounding is repeated here.
        weight[j] = kKind == kRounded ? weight[j] - (weight[j] - wide) : wide;
        noise[j] = words[h * 4 + j] ^ random;
      }
      if (kKind == kCorrected) store<kFull>(lost + at + offset, count, split(weight, noise));
      store<kFull>(weights + at + offset, count, weight, noise);
      store<kFull>(first + at + offset, count, mean, noise), store<kFull>(second + at + offset, count, square, noise);
    }
  }
};

template <Kind kKind, class Stored>
LT_INLINE void update_blocks(const Entry& entry, float step, const Numbers& numbers, u32 lane, u32 thread_block) {
  if (entry.first_scales)
    for_blocks_of_warp(CodedBlock<kKind, Stored>(entry, step, numbers, lane), entry.size, entry.aligned, thread_block);
  else
    for_blocks_of_warp(PlainBlock<kKind, Stored>(entry, step, numbers, lane), entry.size, entry.aligned, thread_block);
}

template <class Stored>
LT_INLINE void adamw_8bit(const Table& table) {
  update_parameter(table, [](const Entry& entry, float step, const Numbers& numbers, u32 lane, u32 thread_block) {
    constexpr Kind kPlain = sizeof(Stored) == 2 ? kRounded : kSingle, kExact = kIsBf16<Stored> ? kCorrected : kPlain;
    if (kIsBf16<Stored> && entry.lost) update_blocks<kExact, Stored>(entry, step, numbers, lane, thread_block);
    else update_blocks<kPlain, Stored>(entry, step, numbers, lane, thread_block);
  });
}

extern "C" __global__ void __launch_bounds__(256, 3) adamw_8bit_fp32(LT_TABLE(Table) table) {
  adamw_8bit<float>(table);
}
extern "C" __global__ void __launch_bounds__(256, 3) adamw_8bit_bf16(LT_TABLE(Table) table) {
  adamw_8bit<u16>(table);
}
extern "C" __global__ void __launch_bounds__(256, 3) adamw_8bit_fp16(LT_TABLE(Table) table) {
  adamw_8bit<Half>(table);
}
)cuda";

inline constexpr KernelSource kAdamW8bitSource{"AdamW8bit",
                                               {kBlockCode, kAdamWStructs, kAdamWCode, kAdamW8bitCode},
                                               AdamWTable::kHeaderBytes,
                                               AdamWTable::kEntryBytes};

}  // namespace looptorch::detail
