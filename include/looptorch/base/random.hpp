// SPDX-License-Identifier: MIT
// Draws random numbers that are the same with every compiler, standard library and processor. Samplers and
// augmentation draw from `SplitMix64`; programs that generate a synthetic corpus draw from `Dice`. Takes a
// few nanoseconds per number. Not for cryptography.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <utility>

namespace looptorch {

namespace detail {

/// The odd number nearest to 2^64 / golden ratio. Multiples of it spread evenly over 64 bits.
inline constexpr std::uint64_t kGoldenGamma = 0x9e3779b97f4a7c15U;

/// SplitMix64's finalizer (Stafford's variant 13).
[[nodiscard]] constexpr std::uint64_t mix64(std::uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9U;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebU;
  return value ^ (value >> 31);
}

}  // namespace detail

/// Maps 64 random bits to a number in [0, 1): the upper 53 of them, as many as a double holds.
[[nodiscard]] constexpr double uniform_from(std::uint64_t bits) {
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

/// SplitMix64 (Steele, Lea, Flood 2014), for one thread. The numbers of a seed are part of the contract.
/// at::Philox4_32 is as portable; it needs ATen's headers, and ten rounds a block.
class SplitMix64 {
 public:
  explicit constexpr SplitMix64(std::uint64_t seed) : state_(seed) {}

  /// Returns the next 64 bits.
  constexpr std::uint64_t next() { return detail::mix64(state_ += detail::kGoldenGamma); }

  /// Returns a number in [0, bound), without bias; `bound` must not be 0.
  constexpr std::uint64_t below(std::uint64_t bound) {
    const std::uint64_t surplus = (0 - bound) % bound;  // 2^64 mod bound
    std::uint64_t value = next();
    while (value < surplus) value = next();
    return value % bound;
  }

  /// Returns a number in [0, 1).
  constexpr double uniform() { return uniform_from(next()); }

 private:
  std::uint64_t state_;
};

/// Draws choices for a generated corpus, for one thread. The numbers of a seed are part of the contract.
class Dice {
 public:
  explicit constexpr Dice(std::uint64_t seed) : random_(seed) {}

  /// Returns 64 random bits, as a seed for other draws.
  constexpr std::uint64_t roll() { return random_.next(); }

  /// Returns a number in [0, 1).
  constexpr double share() { return random_.uniform(); }

  /// Returns an integer in [0, bound); `bound` must not be 0.
  constexpr std::size_t below(std::size_t bound) { return random_.below(bound); }

  /// Returns an integer from `low` to `high`, both included.
  template <std::signed_integral Integer>
  constexpr Integer between(Integer low, Integer high) {
    const auto first = static_cast<std::uint64_t>(low);
    return static_cast<Integer>(first + random_.below(static_cast<std::uint64_t>(high) - first + 1));
  }

  /// Returns an element of a vector, array or span that is not empty.
  template <class Range>
  constexpr const auto& pick(const Range& from) {
    return from[below(std::size(from))];
  }

 private:
  SplitMix64 random_;
};

/// Derives a seed from `seed` and the number of a sample, epoch or worker that has a generator of its own.
/// Seeds of neighbouring numbers are unrelated, and so are seeds of chains (`derive_seed(derive_seed(seed,
/// epoch), index)`).
[[nodiscard]] constexpr std::uint64_t derive_seed(std::uint64_t seed, std::uint64_t number) {
  return detail::mix64(detail::mix64(seed + detail::kGoldenGamma) + number * detail::kGoldenGamma);
}

/// Shuffles in place; all permutations are equally likely (Fisher and Yates).
template <class T>
void shuffle(std::span<T> values, SplitMix64& random) {
  for (std::size_t left = values.size(); left > 1; --left)
    std::swap(values[left - 1], values[random.below(left)]);
}

namespace detail {

/// Returns the generator from which a sampler draws an epoch.
[[nodiscard]] inline SplitMix64 epoch_random(std::uint64_t seed, std::int64_t epoch) {
  return SplitMix64(mix64(seed) + static_cast<std::uint64_t>(epoch));
}

}  // namespace detail
}  // namespace looptorch
