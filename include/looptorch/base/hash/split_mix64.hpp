// SPDX-License-Identifier: MIT
// Random numbers that are the same with every compiler, standard library and processor. Samplers and
// augmentation draw from them. A few nanoseconds a number.
#pragma once

#include <cstdint>
#include <span>
#include <utility>

namespace looptorch::detail {

/// The odd number nearest to 2^64 / golden ratio. Multiples of it spread evenly over 64 bits.
inline constexpr std::uint64_t kGoldenGamma = 0x9e3779b97f4a7c15U;

/// SplitMix64's finalizer (Stafford's variant 13).
[[nodiscard]] constexpr std::uint64_t mix64(std::uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9U;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebU;
  return value ^ (value >> 31);
}

/// SplitMix64 (Steele, Lea, Flood 2014): the same numbers with every compiler and standard library.
class SplitMix64 {
 public:
  explicit SplitMix64(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next() { return mix(state_ += kGamma); }

  /// Returns a number uniform in [0, bound), without bias.
  std::uint64_t below(std::uint64_t bound) {
    const std::uint64_t surplus = (0 - bound) % bound;  // 2^64 mod bound
    std::uint64_t value = next();
    while (value < surplus) value = next();
    return value % bound;
  }

  static std::uint64_t mix(std::uint64_t value) { return mix64(value); }

  static constexpr std::uint64_t kGamma = kGoldenGamma;

 private:
  std::uint64_t state_;
};

/// Returns the generator from which a sampler draws an epoch.
inline SplitMix64 epoch_random(std::uint64_t seed, std::int64_t epoch) {
  return SplitMix64(SplitMix64::mix(seed) + static_cast<std::uint64_t>(epoch));
}

/// Returns a seed derived from `seed` and `number`. Seeds of neighbouring numbers are unrelated.
inline std::uint64_t derive_seed(std::uint64_t seed, std::uint64_t number) {
  return SplitMix64::mix(SplitMix64::mix(seed + SplitMix64::kGamma) + number * SplitMix64::kGamma);
}

/// Shuffles in place; all permutations are equally likely (Fisher and Yates).
template <class T>
void shuffle(std::span<T> values, SplitMix64& random) {
  for (std::size_t left = values.size(); left > 1; --left)
    std::swap(values[left - 1], values[random.below(left)]);
}

}  // namespace looptorch::detail
