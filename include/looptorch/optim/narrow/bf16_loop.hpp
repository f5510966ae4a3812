// SPDX-License-Identifier: MIT
// AdamW's update of weights and moments in bf16, block by block: computed in fp32, and rounded
// stochastically, so that changes smaller than a bf16 step are kept on average.
#pragma once

#include <looptorch/optim/narrow/adam_numbers.hpp>
#include <looptorch/optim/narrow/lanes.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace looptorch::detail {

[[nodiscard, gnu::always_inline]] inline float widen_bf16(std::uint16_t bits) {
  return number_of(std::uint32_t{bits} << 16);
}
/// Returns one of the two neighbours in bf16, by `noise` of 16 bits.
[[nodiscard, gnu::always_inline]] inline std::uint16_t round_bf16(float number, std::uint32_t noise) {
  return static_cast<std::uint16_t>((bits_of(number) + noise) >> 16);
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

/// bf16 weights rounded to the nearest, and what that lost: an fp32 number's bits, less the bf16 number's.
struct SplitWeight {
  using Stored = std::uint16_t;
  using Lost = std::int16_t;
  [[gnu::always_inline]] static float load(std::uint16_t stored, std::int16_t lost) {
    return number_of((std::uint32_t{stored} << 16) + static_cast<std::uint32_t>(std::int32_t{lost}));
  }
  [[gnu::always_inline]] static void store(float number, std::uint32_t, std::uint16_t& stored,
                                           std::int16_t& lost) {
    stored = static_cast<std::uint16_t>((bits_of(number) + 0x8000u) >> 16);
    lost = static_cast<std::int16_t>(bits_of(number) - (std::uint32_t{stored} << 16));
  }
};

/// bf16 weights rounded to the nearest, and 8 bits of what that lost, rounded stochastically: 24 of
/// fp32's 32.
struct CorrectedWeight {
  using Stored = std::uint16_t;
  using Lost = std::int8_t;
  [[gnu::always_inline]] static float load(std::uint16_t stored, std::int8_t lost) {
    return number_of((std::uint32_t{stored} << 16) + static_cast<std::uint32_t>(std::int32_t{lost} * 256));
  }
  /// Takes 16 random bits, and uses 8.
  [[gnu::always_inline]] static void store(float number, std::uint32_t noise, std::uint16_t& stored,
                                           std::int8_t& lost) {
    const std::uint32_t bits = (bits_of(number) + (noise >> 8)) & ~0xFFu;
    stored = static_cast<std::uint16_t>((bits + 0x8000u) >> 16);
    lost = static_cast<std::int8_t>((bits - (std::uint32_t{stored} << 16)) >> 8);
  }
};

/// One parameter's memory, `size` elements each; `lost` is null but for `SplitWeight`. Gradients have the
/// weights' dtype.
template <class Weight>
struct Bf16Loop {
  using Stored = typename Weight::Stored;
  Stored* weights;
  std::int16_t* lost;
  const Stored* gradients;
  std::uint16_t *first, *second;
  std::int64_t size;
  std::uint64_t update;  ///< The number of this update, from which the rounding's bits come.
  AdamNumbers numbers;

  /// Updates blocks [begin, end).
  [[gnu::always_inline]] void run(std::int64_t begin, std::int64_t end) const {
    constexpr auto kCount = static_cast<std::int64_t>(kLanes);
    for (std::int64_t block = begin; block < end; ++block) {
      const std::int64_t at = block * kCount;
      if (at + kCount > size)
        run_last(at, block);
      else if constexpr (kSplit)
        run_block(weights + at, lost + at, gradients + at, first + at, second + at, block);
      else
        run_block(weights + at, nullptr, gradients + at, first + at, second + at, block);
    }
  }

 private:
  static constexpr bool kSplit = std::is_same_v<Weight, SplitWeight>;

  /// Updates a block of fewer than 256 elements, filled up with zeros.
  [[gnu::always_inline]] void run_last(std::int64_t at, std::int64_t block) const {
    Stored weight[kLanes] = {}, gradient[kLanes] = {};
    std::int16_t rest[kLanes] = {};
    std::uint16_t mean[kLanes] = {}, square[kLanes] = {};
    const std::int64_t count = size - at;
    std::copy_n(weights + at, count, weight), std::copy_n(gradients + at, count, gradient);
    std::copy_n(first + at, count, mean), std::copy_n(second + at, count, square);
    if constexpr (kSplit) std::copy_n(lost + at, count, rest);
    run_block(weight, rest, gradient, mean, square, block);
    std::copy_n(weight, count, weights + at);
    std::copy_n(mean, count, first + at), std::copy_n(square, count, second + at);
    if constexpr (kSplit) std::copy_n(rest, count, lost + at);
  }

  [[gnu::always_inline]] void run_block(Stored* __restrict weight, std::int16_t* __restrict rest,
                                        const Stored* __restrict gradient, std::uint16_t* __restrict mean,
                                        std::uint16_t* __restrict square, std::int64_t block) const {
    const AdamNumbers rule = numbers;
    const std::uint64_t random = block_word(update, static_cast<std::uint64_t>(block));
    const auto of_first = static_cast<std::uint32_t>(random & 0xFFFF);
    const auto of_second = static_cast<std::uint32_t>(random >> 16 & 0xFFFF);
    const auto of_weight = static_cast<std::uint32_t>(random >> 32 & 0xFFFF);
    for (std::size_t i = 0; i < kLanes; ++i) {
      std::int16_t none = 0;
      std::int16_t& kept = kSplit ? rest[i] : none;
      const float slope = widen(gradient[i]) * rule.gradient_factor;
      const float new_mean = rule.first(widen_bf16(mean[i]), slope);
      const float new_square = rule.second(widen_bf16(square[i]), slope);
      const float number = rule.weight(Weight::load(weight[i], kept), new_mean, quick_root(new_square));
      mean[i] = round_bf16(new_mean, kLaneWords<0, 16>[i] ^ of_first);
      square[i] = round_bf16(new_square, kLaneWords<1, 16>[i] ^ of_second);
      Weight::store(number, kLaneWords<2, 16>[i] ^ of_weight, weight[i], kept);
    }
  }

  [[gnu::always_inline]] static float widen(float number) { return number; }
  [[gnu::always_inline]] static float widen(std::uint16_t bits) { return widen_bf16(bits); }
};

}  // namespace looptorch::detail
