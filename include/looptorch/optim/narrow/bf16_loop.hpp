// SPDX-License-Identifier: MIT
// AdamWBf16's loop on a CPU: updates weights in fp32 or 16 bits, with moments in bf16, by blocks of 256
// elements. Computes in fp32 and rounds stochastically, so that changes too small for 16 bits are not lost.
#pragma once

#include <looptorch/optim/narrow/adam_numbers.hpp>
#include <looptorch/optim/narrow/block_loop.hpp>
#include <looptorch/optim/narrow/stored_weights.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace looptorch::detail {

/// Pointers to one parameter's memory, `size` elements each. `lost` is null unless `Weight` is `SplitWeight`.
/// Gradients have the weights' dtype.
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
    constexpr auto kCount = static_cast<std::int64_t>(kBlockElements);
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
    Stored weight[kBlockElements] = {}, gradient[kBlockElements] = {};
    std::int16_t rest[kBlockElements] = {};
    std::uint16_t mean[kBlockElements] = {}, square[kBlockElements] = {};
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
    for (std::size_t i = 0; i < kBlockElements; ++i) {
      std::int16_t none = 0;
      std::int16_t& kept = kSplit ? rest[i] : none;
      const float slope = Weight::load(gradient[i], 0) * rule.gradient_factor;
      const float new_mean = rule.first(widen_bf16(mean[i]), slope);
      const float new_square = rule.second(widen_bf16(square[i]), slope);
      const float number = rule.weight(Weight::load(weight[i], kept), new_mean, quick_root(new_square));
      mean[i] = round_bf16(new_mean, kElementWords<0, 16>[i] ^ of_first);
      square[i] = round_bf16(new_square, kElementWords<1, 16>[i] ^ of_second);
      Weight::store(number, kElementWords<2, 16>[i] ^ of_weight, weight[i], kept);
    }
  }
};

}  // namespace looptorch::detail
