// SPDX-License-Identifier: MIT
// Loads weights as fp32 numbers and stores them again, for the CPU loops of optimizers. A weight is stored as
// fp32; as bf16 or fp16, rounded stochastically; or as bf16, with the bits that rounding cuts off in a second
// tensor.
#pragma once

#include <looptorch/optim/narrow/block_loop.hpp>

#include <cstdint>

namespace looptorch::detail {

[[nodiscard, gnu::always_inline]] inline float widen_bf16(std::uint16_t bits) {
  return number_of(std::uint32_t{bits} << 16);
}
/// Returns the number's bits, to which rounding adds random ones. Returns the same bits for all NaNs: adding
/// to 0x7FFFFFFF, the NaN that NVIDIA's GPUs compute, would make it a zero.
[[nodiscard, gnu::always_inline]] inline std::uint32_t bits_to_round(float number) {
  constexpr std::uint32_t kInfinity = 0x7F800000u, kNan = 0x7FC00000u;
  const std::uint32_t bits = bits_of(number);
  return (bits & ~kSignBit) > kInfinity ? kNan : bits;
}
/// Rounds to one of the two neighbours in bf16, chosen by `noise` of 16 bits.
[[nodiscard, gnu::always_inline]] inline std::uint16_t round_bf16(float number, std::uint32_t noise) {
  return static_cast<std::uint16_t>((bits_to_round(number) + noise) >> 16);
}

/// Returns an fp16 number, by arithmetic that has no subnormal fp32 numbers in it.
[[nodiscard, gnu::always_inline]] inline float widen_fp16(std::uint16_t bits) {
  const std::uint32_t sign = (bits & 0x8000u) << 16, size = bits & 0x7FFFu;
  const std::uint32_t tiny = bits_of(static_cast<float>(static_cast<std::int32_t>(size)) * 0x1p-24f);
  const std::uint32_t normal = (size << 13) + (size < 0x7C00u ? 0x38000000u : 0x70000000u);
  return number_of((size < 0x400u ? tiny : normal) | sign);
}
/// Rounds to a neighbour in fp16, chosen by 13 of 16 random bits; infinity beyond 65504 and its step.
[[nodiscard, gnu::always_inline]] inline std::uint16_t round_fp16(float number, std::uint32_t noise) {
  constexpr std::uint32_t kLeastNormal = 0x38800000u;  // 2^-14, below which steps are 2^-24
  const std::uint32_t bits = bits_of(number), size = bits & ~kSignBit, random = noise >> 3;
  const float least = number_of(size < kLeastNormal ? size : kLeastNormal);
  const auto tiny = static_cast<std::uint32_t>(static_cast<std::int32_t>(
      least * 0x1p24f + static_cast<float>(static_cast<std::int32_t>(random)) * 0x1p-13f));
  const std::uint32_t normal = (size + random - 0x38000000u) >> 13;
  const std::uint32_t finite = size < kLeastNormal ? tiny : normal < 0x7C00u ? normal : 0x7C00u;
  return static_cast<std::uint16_t>((size > 0x7F800000u ? 0x7E00u : finite) | (bits >> 16 & 0x8000u));
}

/// fp32 weights.
struct SingleWeight {
  using Stored = float;
  using Lost = std::int16_t;
  [[gnu::always_inline]] static float load(float stored, std::int16_t) { return stored; }
  [[gnu::always_inline]] static void store(float number, std::uint32_t, float& stored, std::int16_t&) {
    stored = number;
  }
};

/// bf16 weights, rounded stochastically.
struct Bf16Weight {
  using Stored = std::uint16_t;
  using Lost = std::int16_t;
  [[gnu::always_inline]] static float load(std::uint16_t stored, std::int16_t) { return widen_bf16(stored); }
  [[gnu::always_inline]] static void store(float number, std::uint32_t noise, std::uint16_t& stored,
                                           std::int16_t&) {
    stored = round_bf16(number, noise);
  }
};

/// fp16 weights, rounded stochastically.
struct Fp16Weight {
  using Stored = std::uint16_t;
  using Lost = std::int16_t;
  [[gnu::always_inline]] static float load(std::uint16_t stored, std::int16_t) { return widen_fp16(stored); }
  [[gnu::always_inline]] static void store(float number, std::uint32_t noise, std::uint16_t& stored,
                                           std::int16_t&) {
    stored = round_fp16(number, noise);
  }
};

/// bf16 weights rounded to nearest, and what rounding lost: an fp32 number's bits, less the bf16 number's.
struct SplitWeight {
  using Stored = std::uint16_t;
  using Lost = std::int16_t;
  [[gnu::always_inline]] static float load(std::uint16_t stored, std::int16_t lost) {
    return number_of((std::uint32_t{stored} << 16) + static_cast<std::uint32_t>(std::int32_t{lost}));
  }
  [[gnu::always_inline]] static void store(float number, std::uint32_t, std::uint16_t& stored,
                                           std::int16_t& lost) {
    const std::uint32_t bits = bits_to_round(number);
    stored = static_cast<std::uint16_t>((bits + 0x8000u) >> 16);
    lost = static_cast<std::int16_t>(bits - (std::uint32_t{stored} << 16));
  }
};

/// bf16 weights rounded to the nearest, and 8 bits of what rounding lost, which are rounded
/// stochastically: 24 of fp32's 32 bits.
struct CorrectedWeight {
  using Stored = std::uint16_t;
  using Lost = std::int8_t;
  [[gnu::always_inline]] static float load(std::uint16_t stored, std::int8_t lost) {
    return number_of((std::uint32_t{stored} << 16) + static_cast<std::uint32_t>(std::int32_t{lost} * 256));
  }
  /// Takes 16 random bits, and uses 8.
  [[gnu::always_inline]] static void store(float number, std::uint32_t noise, std::uint16_t& stored,
                                           std::int8_t& lost) {
    const std::uint32_t bits = (bits_to_round(number) + (noise >> 8)) & ~0xFFu;
    stored = static_cast<std::uint16_t>((bits + 0x8000u) >> 16);
    lost = static_cast<std::int8_t>((bits - (std::uint32_t{stored} << 16)) >> 8);
  }
};

}  // namespace looptorch::detail
