// SPDX-License-Identifier: MIT
// Encodes AdamW8bit's moments in 8 bits. The 256 numbers of a block share a scale, by which the largest
// magnitude among them becomes 1.2e5. Codes grow with the logarithm of the number, as in telephony's u-law
// (ITU-T G.711), and neighbouring codes stand for numbers several per cent apart. So numbers are rounded
// stochastically: with rounding to nearest, a running mean that moves by 0.1 % an update would never change.
// For a scaled magnitude x, the code is the low exponent bits and high fraction bits of the float x + 2, so
// coding needs no table and no branch.
#pragma once

#include <looptorch/optim/narrow/block_loop.hpp>

#include <cstdint>

namespace looptorch::detail {

/// Codes of `kBits` bits for numbers x from 0 to `kRange`, with 2^`kFraction` codes an octave. A code is the
/// low exponent bits and high fraction bits of z = x + 2; 0 stands for 0.
template <int kBits, int kFraction>
struct OctaveCode {
  static constexpr int kDropped = 23 - kFraction;      ///< Bits of a float's fraction that a code drops.
  static constexpr std::uint32_t kBase = 0x40000000u;  // 2.0f
  static constexpr std::uint32_t kMask = (1u << kBits) - 1;
  static constexpr float kRange = std::bit_cast<float>(kBase | kMask << kDropped) - 2;
  static constexpr float kSmallest = std::bit_cast<float>(kBase | 1u << kDropped) - 2;
  /// The largest number of a scaled block. Below `kRange`, since the product that scales it is rounded.
  static constexpr float kLargest = kRange * (1 - 0x1p-20f);

  [[nodiscard, gnu::always_inline]] static float decode(std::uint32_t code) {
    return number_of(kBase | code << kDropped) - 2;
  }

  /// Returns the code, which may have bits above `kMask`.
  [[nodiscard, gnu::always_inline]] static std::uint32_t encode(float number, std::uint32_t noise) {
    return (bits_of(number + 2) + noise) >> kDropped;
  }
};

/// Codes of first moments: a sign, and 16 octaves of 8 codes. The smallest is 2e-6 of the block's largest.
struct SignedCode : OctaveCode<7, 3> {
  static constexpr float kLeast = 0;  ///< Smaller numbers are raised to this before they are coded.

  [[nodiscard, gnu::always_inline]] static float decode(std::uint8_t code, float step) {
    const float size = OctaveCode::decode(code & kMask) * step;
    return number_of(bits_of(size) | (std::uint32_t{code} << 24 & kSignBit));
  }

  [[nodiscard, gnu::always_inline]] static std::uint8_t encode(float number, float factor,
                                                               std::uint32_t noise) {
    const std::uint32_t bits = bits_of(number);
    const std::uint32_t size = OctaveCode::encode(number_of(bits & ~kSignBit) * factor, noise);
    return static_cast<std::uint8_t>((size & kMask) | (bits & kSignBit) >> 24);
  }
};

/// Codes of the roots of second moments: 16 octaves of 16 codes. In a block that is not all zeros the
/// least is 1e-6 of the largest, and not 0, since an update divides by it.
struct RootCode : OctaveCode<8, 4> {
  static constexpr float kLeast = kSmallest;

  [[nodiscard, gnu::always_inline]] static float decode(std::uint8_t code, float step) {
    return OctaveCode::decode(code) * step;
  }

  [[nodiscard, gnu::always_inline]] static std::uint8_t encode(float number, float factor,
                                                               std::uint32_t noise) {
    const std::uint32_t size = larger(bits_of(number * factor), bits_of(kLeast));
    return static_cast<std::uint8_t>(OctaveCode::encode(number_of(size), noise));
  }
};

/// Returns the factor by which a block's numbers are multiplied to be coded; `step_of` is its inverse.
template <class Code>
[[nodiscard, gnu::always_inline]] inline float factor_of(float largest) {
  return largest > 0 ? Code::kLargest / largest : 0.0f;
}
template <class Code>
[[nodiscard, gnu::always_inline]] inline float step_of(float largest) {
  return largest / Code::kLargest;
}

}  // namespace looptorch::detail
