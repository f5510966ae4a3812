// SPDX-License-Identifier: MIT
// Helps compilers vectorise the CPU loops over blocks of 256 numbers. Provides random bits for rounding, a
// square root, and `run_widest`, which picks the instruction set at run time. Each loop is compiled for
// AVX-512, AVX2 and baseline x86-64. Code for the baseline, the compilers' default, is 3 to 4 times slower
// than AVX-512.
#pragma once

#include <looptorch/base/random.hpp>

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace looptorch::detail {

/// Numbers in a block.
inline constexpr std::size_t kBlockElements = 256;

[[nodiscard, gnu::always_inline]] inline std::uint32_t bits_of(float number) {
  return std::bit_cast<std::uint32_t>(number);
}
[[nodiscard, gnu::always_inline]] inline float number_of(std::uint32_t bits) {
  return std::bit_cast<float>(bits);
}

inline constexpr std::uint32_t kSignBit = 0x80000000u;

/// Returns the larger. Bits of floats above 0 are ordered as the floats are, with infinity and NaN above all.
template <class Integer>
[[nodiscard, gnu::always_inline]] inline Integer larger(Integer a, Integer b) {
  return a > b ? a : b;
}

/// Returns the root of a number that is not negative, within 5e-6 of its size: two of Newton's steps. The
/// library's function sets errno, which keeps compilers from vectorising it.
[[nodiscard, gnu::always_inline]] inline float quick_root(float number) {
  const float half = 0.5f * number;
  float inverse = number_of(0x5F375A86u - (bits_of(number) >> 1));
  inverse *= 1.5f - (half * inverse) * inverse;
  inverse *= 1.5f - (half * inverse) * inverse;
  return number * inverse;
}

// ---- Random bits for rounding ----

/// Random words of `kBits` bits, one for each element of a block; `kSet` numbers the sets that a loop uses.
template <int kSet, int kBits>
inline constexpr std::array<std::uint32_t, kBlockElements> kElementWords = [] {
  std::array<std::uint32_t, kBlockElements> words{};
  for (std::size_t i = 0; i < kBlockElements; ++i)
    words[i] =
        static_cast<std::uint32_t>(mix64((kSet * kBlockElements + i + 1) * kGoldenGamma) >> (64 - kBits));
  return words;
}();

/// Returns random bits that depend only on update and block, so that a resumed run rounds as an uninterrupted
/// one. Xor with an element's word, the bits are uniform and independent from update to update.
[[nodiscard]] constexpr std::uint64_t block_word(std::uint64_t update, std::uint64_t block) {
  return mix64(mix64(update * kGoldenGamma) + (block + 1) * kGoldenGamma);
}

// ---- Instruction sets ----

#if defined(__x86_64__) && defined(__GNUC__)
template <class Loop>
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]] void run_avx512(const Loop& loop,
                                                                               std::int64_t begin,
                                                                               std::int64_t end) {
  loop.run(begin, end);
}
template <class Loop>
[[gnu::target("avx2,fma")]] void run_avx2(const Loop& loop, std::int64_t begin, std::int64_t end) {
  loop.run(begin, end);
}
#endif

/// True while loops over elements compute nothing; ShapesOnly sets it.
inline std::atomic<bool> loops_are_skipped = false;

/// Calls `loop.run(begin, end)`, a function that is always inlined, as compiled for the widest vectors that
/// this processor has. Last bits may differ between processors: some multiply and add in one rounding.
template <class Loop>
void run_widest(const Loop& loop, std::int64_t begin, std::int64_t end) {
  if (loops_are_skipped.load(std::memory_order_relaxed)) return;
#if defined(__x86_64__) && defined(__GNUC__)
  static const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  static const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") &&
                             __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                             __builtin_cpu_supports("avx512vl");
  if (avx512) return run_avx512(loop, begin, end);
  if (avx2) return run_avx2(loop, begin, end);
#endif
  loop.run(begin, end);
}

}  // namespace looptorch::detail
