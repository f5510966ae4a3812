// SPDX-License-Identifier: MIT
// The random numbers of the corpus. The same seed gives the same numbers with every compiler and standard
// library.
#pragma once

#include <looptorch/base/random.hpp>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace spectrogram_gan {

class Dice {
 public:
  explicit Dice(std::uint64_t seed) : random_(seed) {}

  /// Returns a number in [0, 1).
  double share() { return random_.uniform(); }

  /// Returns a number in [low, high).
  double between(double low, double high) { return low + (high - low) * share(); }

  /// Returns an integer below `bound`.
  std::size_t below(std::size_t bound) { return random_.below(bound); }

  bool chance(double probability) { return share() < probability; }

  /// Returns a number of mean 0 and deviation 1, at most 3.5: the sum of four uniform ones.
  double bell() {
    double sum = -2;
    for (int i = 0; i < 4; ++i) sum += share();
    return sum * std::sqrt(3.0);
  }

  template <class T, std::size_t N>
  const T& pick(const std::array<T, N>& from) {
    return from[below(N)];
  }

 private:
  looptorch::SplitMix64 random_;
};

}  // namespace spectrogram_gan
