// SPDX-License-Identifier: MIT
// AdamW8bit's loop on a CPU: updates weights in fp32 or 16 bits, with 8-bit moments, by blocks of 256
// elements. Decodes a block's moments to fp32 only while it updates the block, in 2 KiB on the stack.
#pragma once

#include <looptorch/optim/narrow/adam_numbers.hpp>
#include <looptorch/optim/narrow/block_codes.hpp>
#include <looptorch/optim/narrow/block_loop.hpp>
#include <looptorch/optim/narrow/stored_weights.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace looptorch::detail {

/// Pointers to one parameter's memory: `size` elements each, but one scale for each block.
template <class Weight>
struct EightBitLoop {
  using Stored = typename Weight::Stored;
  using Lost = typename Weight::Lost;
  Stored* weights;
  Lost* lost;  ///< Null unless `Weight` is `CorrectedWeight`.
  const Stored* gradients;
  std::uint8_t *first_codes, *root_codes;
  float *first_scales, *root_scales;  ///< The largest number of each block.
  std::int64_t size;
  std::uint64_t update;  ///< The number of this update, from which the rounding's bits come.
  AdamNumbers numbers;

  /// Updates blocks [begin, end).
  [[gnu::always_inline]] void run(std::int64_t begin, std::int64_t end) const {
    constexpr auto kCount = static_cast<std::int64_t>(kBlockElements);
    for (std::int64_t block = begin; block < end; ++block) {
      const std::int64_t at = block * kCount;
      if (at + kCount <= size)
        run_block(weights + at, kCorrected ? lost + at : nullptr, gradients + at, first_codes + at,
                  root_codes + at, block);
      else
        run_last(at, block);
    }
  }

 private:
  static constexpr bool kCorrected = std::is_same_v<Weight, CorrectedWeight>;

  /// Updates a block of fewer than 256 elements, filled up with zeros.
  [[gnu::always_inline]] void run_last(std::int64_t at, std::int64_t block) const {
    Stored weight[kBlockElements] = {}, gradient[kBlockElements] = {};
    Lost rest[kBlockElements] = {};
    std::uint8_t first[kBlockElements] = {}, root[kBlockElements] = {};
    const std::int64_t count = size - at;
    std::copy_n(weights + at, count, weight), std::copy_n(gradients + at, count, gradient);
    std::copy_n(first_codes + at, count, first), std::copy_n(root_codes + at, count, root);
    if constexpr (kCorrected) std::copy_n(lost + at, count, rest);
    run_block(weight, rest, gradient, first, root, block);
    if constexpr (kCorrected) std::copy_n(rest, count, lost + at);
    std::copy_n(weight, count, weights + at);
    std::copy_n(first, count, first_codes + at), std::copy_n(root, count, root_codes + at);
  }

  [[gnu::always_inline]] void run_block(Stored* __restrict weight, Lost* __restrict rest,
                                        const Stored* __restrict gradient,
                                        std::uint8_t* __restrict first_code,
                                        std::uint8_t* __restrict root_code, std::int64_t block) const {
    alignas(64) float first[kBlockElements], root[kBlockElements];
    const AdamNumbers rule = numbers;
    const float first_step = step_of<SignedCode>(first_scales[block]);
    const float root_step = step_of<RootCode>(root_scales[block]);
    std::uint32_t largest_first = 0, largest_root = 0;
    const auto of_weight =
        static_cast<std::uint32_t>(mix64(block_word(update, static_cast<std::uint64_t>(block)))) & 0xFFFF;
    for (std::size_t i = 0; i < kBlockElements; ++i) {
      Lost none = 0;
      Lost& kept = kCorrected ? rest[i] : none;
      const float slope = Weight::load(gradient[i], 0) * rule.gradient_factor;
      const float old_root = RootCode::decode(root_code[i], root_step);
      const float mean = rule.first(SignedCode::decode(first_code[i], first_step), slope);
      const float scale = quick_root(rule.second(old_root * old_root, slope));
      Weight::store(rule.weight(Weight::load(weight[i], kept), mean, scale),
                    kElementWords<2, 16>[i] ^ of_weight, weight[i], kept);
      first[i] = mean, root[i] = scale;
      largest_first = larger(largest_first, bits_of(mean) & ~kSignBit);
      largest_root = larger(largest_root, bits_of(scale));
    }
    first_scales[block] = number_of(largest_first), root_scales[block] = number_of(largest_root);
    encode<SignedCode, 0>(first, number_of(largest_first), first_code, block);
    encode<RootCode, 1>(root, number_of(largest_root), root_code, block);
  }

  template <class Code, int kSet>
  [[gnu::always_inline]] void encode(const float* __restrict number, float largest,
                                     std::uint8_t* __restrict code, std::int64_t block) const {
    const float factor = factor_of<Code>(largest);
    const auto& words = kElementWords<kSet, Code::kDropped>;
    const std::uint64_t random = block_word(update, static_cast<std::uint64_t>(block)) >> (32 * kSet);
    const auto shared = static_cast<std::uint32_t>(random) & ((1u << Code::kDropped) - 1);
    for (std::size_t i = 0; i < kBlockElements; ++i)
      code[i] = Code::encode(number[i], factor, words[i] ^ shared);
  }
};

}  // namespace looptorch::detail
