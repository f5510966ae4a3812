// SPDX-License-Identifier: MIT
// Holds CUDA C++ source of functions that optimizers' kernels share: random bits (those of
// optim/narrow/block_loop.hpp), sums and maxima over a warp, and loads and stores of four neighbouring
// elements.
#pragma once

namespace looptorch::detail {

/// `load` and `store` move four elements. They take `count`, the number of elements left; `load` gives 0 for
/// those beyond. With `kFull` all four exist, and their address is a multiple of the vector's size.
inline constexpr const char* kBlockCode = R"cuda(
constexpr u32 kThreads = 256, kWarp = 32, kAllLanes = 0xFFFFFFFFu, kSignBit = 0x80000000u;
constexpr u32 kBlockElements = 256;  // elements of a block, which has random bits of its own

LT_INLINE u32 bits_of(float number) { return __float_as_uint(number); }
LT_INLINE float number_of(u32 bits) { return __uint_as_float(bits); }
LT_INLINE u32 larger(u32 a, u32 b) { return a > b ? a : b; }
LT_INLINE u32 low_bits(u64 word, int count) { return (u32)word & ((1u << count) - 1); }

// ---- Random bits ----

constexpr u64 kGoldenGamma = 0x9e3779b97f4a7c15ULL;

LT_INLINE u64 mix64(u64 value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ULL;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebULL;
  return value ^ (value >> 31);
}
LT_INLINE u64 block_word(u64 update, u64 block) {
  return mix64(mix64(update * kGoldenGamma) + (block + 1) * kGoldenGamma);
}
LT_INLINE u64 derive_seed(u64 seed, u64 number) {
  return mix64(mix64(seed + kGoldenGamma) + number * kGoldenGamma);
}
template <int kSet, int kBits>
LT_INLINE u32 element_word(u32 lane) {
  return (u32)(mix64((u64)(kSet * kBlockElements + lane + 1) * kGoldenGamma) >> (64 - kBits));
}

// ---- Numbers ----

LT_INLINE float quick_root(float number) {
  const float half = 0.5f * number;
  float inverse = number_of(0x5F375A86u - (bits_of(number) >> 1));
  inverse *= 1.5f - (half * inverse) * inverse;
  inverse *= 1.5f - (half * inverse) * inverse;
  return number * inverse;
}

// Returns the bits of a number to which those of a rounding may be added, one NaN's for all: adding to 0x7FFFFFFF, which
// this GPU computes, would make it a zero.
LT_INLINE u32 bits_to_round(float number) {
  const u32 bits = bits_of(number);
  return (bits & ~kSignBit) > 0x7F800000u ? 0x7FC00000u : bits;
}

// A number in fp16; one in bf16 is a u16.
struct Half {
  u16 bits;
};
template <class Stored>
constexpr bool kIsBf16 = false;
template <>
constexpr bool kIsBf16<u16> = true;

LT_INLINE float wide_of(Half half) {
  const u32 sign = (half.bits & 0x8000u) << 16, size = half.bits & 0x7FFFu;
  const u32 tiny = bits_of((float)(int)size * 5.9604644775390625e-08f);  // 2^-24
  const u32 normal = (size << 13) + (size < 0x7C00u ? 0x38000000u : 0x70000000u);
  return number_of((size < 0x400u ? tiny : normal) | sign);
}
// Returns one of the two neighbours, by 13 of 16 random bits.
LT_INLINE u16 half_bits_of(float number, u32 noise) {
  const u32 bits = bits_of(number), size = bits & ~kSignBit, random = noise >> 3;
  const float least = number_of(size < 0x38800000u ? size : 0x38800000u);  // 2^-14
  const u32 tiny = (u32)(int)(least * 16777216.0f + (float)(int)random * 0.0001220703125f);  // 2^24, 2^-13
  const u32 normal = (size + random - 0x38000000u) >> 13;
  const u32 finite = size < 0x38800000u ? tiny : normal < 0x7C00u ? normal : 0x7C00u;
  return (u16)((size > 0x7F800000u ? 0x7E00u : finite) | (bits >> 16 & 0x8000u));
}

LT_INLINE u32 warp_largest(u32 value) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
  for (int far = 16; far > 0; far >>= 1) value = larger(value, __shfl_xor_sync(kAllLanes, value, far));
  return value;
#else
  return __reduce_max_sync(kAllLanes, value);
#endif
}

template <class Number>
LT_INLINE Number warp_sum(Number value) {
#pragma unroll
  for (int far = 16; far > 0; far >>= 1) value += __shfl_xor_sync(kAllLanes, value, far);
  return value;
}

// Returns the thread block's sum to thread 0, added in a fixed order.
LT_INLINE double block_sum(double value) {
  __shared__ double of_warps[kThreads / kWarp];
  value = warp_sum(value);
  __syncthreads();
  if (threadIdx.x % kWarp == 0) of_warps[threadIdx.x / kWarp] = value;
  __syncthreads();
  double sum = 0;
  if (threadIdx.x == 0)
    for (u32 i = 0; i < kThreads / kWarp; ++i) sum += of_warps[i];
  return sum;
}

// Returns the last of `begins` that is not after a thread block.
LT_INLINE u32 tensor_of(const u32* begins, u32 count, u32 thread_block) {
  u32 low = 0, high = count;
  while (high - low > 1) {
    const u32 middle = (low + high) / 2;
    if (begins[middle] <= thread_block) low = middle;
    else high = middle;
  }
  return low;
}

// ---- Blocks of 256 elements ----

constexpr u32 kBlocks = 64;  // that a thread block updates; each of its 8 warps one at a time

// A thread has eight elements of a block: four neighbours in each half.
LT_INLINE int offset_of(int half, u32 lane) { return half * 128 + (int)lane * 4; }
LT_INLINE u32 element_of(int i, u32 lane) { return (u32)offset_of(i / 4, lane) + i % 4; }

// Calls `work.update<kFull>(at, block, lane, size)` for each block of `size` elements from element `at` on.
// `aligned` if all pointers are multiples of 16.
template <class Work>
LT_INLINE void for_blocks_of_warp(const Work& work, u64 size, bool aligned, u32 thread_block) {
  const u32 warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const u64 all = (size + kBlockElements - 1) / kBlockElements;
  const u64 begin = (u64)thread_block * kBlocks, end = begin + kBlocks < all ? begin + kBlocks : all;
  for (u64 block = begin + warp; block < end; block += kThreads / kWarp) {
    const u64 at = block * kBlockElements, left = size - at;
    if (aligned && left >= kBlockElements) work.template update<true>(at, block, lane, (int)kBlockElements);
    else work.template update<false>(at, block, lane, left < kBlockElements ? (int)left : (int)kBlockElements);
  }
}

// ---- Four neighbouring elements ----

template <bool kFull>
LT_INLINE void load(const float* from, int count, float (&x)[4]) {
  if (kFull) {
    const float4 all = *reinterpret_cast<const float4*>(from);
    x[0] = all.x, x[1] = all.y, x[2] = all.z, x[3] = all.w;
  } else {
    for (int j = 0; j < 4; ++j) x[j] = j < count ? from[j] : 0.0f;
  }
}
// bf16.
template <bool kFull>
LT_INLINE void load(const u16* from, int count, float (&x)[4]) {
  if (kFull) {
    const uint2 all = *reinterpret_cast<const uint2*>(from);
    x[0] = number_of(all.x << 16), x[1] = number_of(all.x & 0xFFFF0000u);
    x[2] = number_of(all.y << 16), x[3] = number_of(all.y & 0xFFFF0000u);
  } else {
    for (int j = 0; j < 4; ++j) x[j] = j < count ? number_of((u32)from[j] << 16) : 0.0f;
  }
}
// fp16.
template <bool kFull>
LT_INLINE void load(const Half* from, int count, float (&x)[4]) {
  u32 words[2] = {0, 0};
  if (kFull) {
    const uint2 all = *reinterpret_cast<const uint2*>(from);
    words[0] = all.x, words[1] = all.y;
  } else {
    for (int j = 0; j < 4; ++j)
      if (j < count) words[j / 2] |= (u32)from[j].bits << (16 * (j % 2));
  }
#pragma unroll
  for (int j = 0; j < 4; ++j) x[j] = wide_of({(u16)(words[j / 2] >> (16 * (j % 2)))});
}
// Four codes in one word.
template <bool kFull>
LT_INLINE u32 load(const u8* from, int count) {
  if (kFull) return *reinterpret_cast<const u32*>(from);
  u32 all = 0;
  for (int j = 0; j < 4; ++j) all |= j < count ? (u32)from[j] << (8 * j) : 0u;
  return all;
}

template <bool kFull>
LT_INLINE void store(float* to, int count, const float (&x)[4], const u32 (&)[4]) {
  if (kFull) {
    float4 all;
    all.x = x[0], all.y = x[1], all.z = x[2], all.w = x[3];
    *reinterpret_cast<float4*>(to) = all;
  } else {
    for (int j = 0; j < 4; ++j)
      if (j < count) to[j] = x[j];
  }
}
// The upper halves of words.
template <bool kFull>
LT_INLINE void store_upper(u16* to, int count, const u32 (&bits)[4]) {
  if (kFull) {
    uint2 all;
    all.x = bits[0] >> 16 | (bits[1] & 0xFFFF0000u), all.y = bits[2] >> 16 | (bits[3] & 0xFFFF0000u);
    *reinterpret_cast<uint2*>(to) = all;
  } else {
    for (int j = 0; j < 4; ++j)
      if (j < count) to[j] = (u16)(bits[j] >> 16);
  }
}
// bf16, rounded by 16 random bits each.
template <bool kFull>
LT_INLINE void store(u16* to, int count, const float (&x)[4], const u32 (&noise)[4]) {
  u32 bits[4];
  for (int j = 0; j < 4; ++j) bits[j] = bits_to_round(x[j]) + noise[j];
  store_upper<kFull>(to, count, bits);
}
// fp16, rounded by 13 of 16 random bits each.
template <bool kFull>
LT_INLINE void store(Half* to, int count, const float (&x)[4], const u32 (&noise)[4]) {
  u32 words[2] = {0, 0};
#pragma unroll
  for (int j = 0; j < 4; ++j) words[j / 2] |= (u32)half_bits_of(x[j], noise[j]) << (16 * (j % 2));
  if (kFull) {
    uint2 all;
    all.x = words[0], all.y = words[1];
    *reinterpret_cast<uint2*>(to) = all;
  } else {
    for (int j = 0; j < 4; ++j)
      if (j < count) to[j].bits = (u16)(words[j / 2] >> (16 * (j % 2)));
  }
}
template <bool kFull>
LT_INLINE void store(u8* to, int count, u32 all) {
  if (kFull) {
    *reinterpret_cast<u32*>(to) = all;
  } else {
    for (int j = 0; j < 4; ++j)
      if (j < count) to[j] = (u8)(all >> (8 * j));
  }
}
)cuda";

}  // namespace looptorch::detail
