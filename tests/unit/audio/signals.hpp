// SPDX-License-Identifier: MIT
// Signals that tests/parity/audio_mel_spectrogram.py makes by the same formulas, in whole 16-bit steps.
#pragma once

#include "support/precompiled.hpp"

#include <cmath>
#include <cstdint>
#include <numbers>
#include <vector>

namespace signals {

inline std::vector<double> noise(std::int64_t count, int shift) {
  std::vector<double> samples;
  std::uint32_t state = 1;
  for (std::int64_t i = 0; i < count; ++i) {
    state = 1664525 * state + 1013904223;
    samples.push_back((static_cast<std::int32_t>(state >> 16) - 32768) >> shift);
  }
  return samples;
}

/// Four tones that swell and fade, and some noise.
inline std::vector<double> music(std::int64_t count, double rate) {
  std::vector<double> samples = noise(count, 6);
  constexpr double kTurn = 2 * std::numbers::pi;
  for (std::int64_t i = 0; i < count; ++i) {
    const double t = double(i) / rate;
    double tones = 0, period = 2;
    for (const double hz : {220.0, 331.0, 1760.0, 5001.0})
      tones += std::sin(kTurn * hz * t) * (1 + std::sin(kTurn * t / period++));
    samples[std::size_t(i)] += std::nearbyint(3000 * tones);
  }
  return samples;
}

inline at::Tensor as_samples(const std::vector<double>& steps, at::ScalarType type = at::kFloat) {
  return (torch::tensor(steps, torch::kDouble) / 32768).to(type);
}

}  // namespace signals
