// SPDX-License-Identifier: MIT
// Draws the random numbers from which emotion_corpus makes songs. Extends looptorch::Dice by real numbers:
// from a range, or around a mean. The same seed gives the same numbers with every compiler and standard
// library.
#pragma once

#include <looptorch/base/random.hpp>

#include <cmath>

namespace spectrogram_gan {

/// looptorch::Dice that also draws real numbers.
class Dice : public looptorch::Dice {
 public:
  using looptorch::Dice::Dice;

  /// Returns a number in [low, high).
  double real(double low, double high) { return low + (high - low) * share(); }

  bool chance(double probability) { return share() < probability; }

  /// Returns a number of mean 0 and deviation 1, at most 3.5 in size: the scaled sum of four uniform numbers.
  double bell() {
    double sum = -2;
    for (int i = 0; i < 4; ++i) sum += share();
    return sum * std::sqrt(3.0);
  }
};

}  // namespace spectrogram_gan
