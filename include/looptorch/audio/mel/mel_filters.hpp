// SPDX-License-Identifier: MIT
// Makes triangular mel filters on Slaney's scale (Auditory Toolbox, 1998) with area normalisation. They equal
// those of librosa's `filters.mel(htk=False, norm="slaney")`, which openai-whisper ships as mel_filters.npz.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

namespace looptorch::audio {

/// Linear below 1 kHz, logarithmic above.
struct SlaneyScale {
  static constexpr double kLinearHz = 200.0 / 3.0;  // Hz a mel
  static constexpr double kBreakHz = 1000.0;
  static constexpr double kBreakMel = kBreakHz / kLinearHz;
  static inline const double kLogStep = std::log(6.4) / 27.0;

  static double to_mel(double hz) {
    return hz < kBreakHz ? hz / kLinearHz : kBreakMel + std::log(hz / kBreakHz) / kLogStep;
  }
  static double to_hz(double mel) {
    return mel < kBreakMel ? mel * kLinearHz : kBreakHz * std::exp(kLogStep * (mel - kBreakMel));
  }
};

/// Returns the corners of `bins` triangles between two frequencies.
inline std::vector<double> mel_corners(std::int64_t bins, double min_hz, double max_hz) {
  const double lowest = SlaneyScale::to_mel(min_hz), highest = SlaneyScale::to_mel(max_hz);
  const double step = (highest - lowest) / static_cast<double>(bins + 1);
  std::vector<double> corners;
  for (std::int64_t i = 0; i <= bins; ++i)
    corners.push_back(SlaneyScale::to_hz(lowest + static_cast<double>(i) * step));
  corners.push_back(SlaneyScale::to_hz(highest));
  return corners;
}

/// Returns the filters `[bins, window / 2 + 1]`, float32, bit-equal to librosa's.
inline at::Tensor slaney_mel_filters(std::int64_t bins, std::int64_t window, std::int64_t sample_rate,
                                     double min_hz, double max_hz) {
  const std::int64_t frequencies = window / 2 + 1;
  const std::vector<double> corners = mel_corners(bins, min_hz, max_hz);
  at::Tensor filters = at::empty({bins, frequencies}, at::kFloat);
  float* out = filters.mutable_data_ptr<float>();
  for (std::int64_t bin = 0; bin < bins; ++bin) {
    const double* corner = corners.data() + bin;
    for (std::int64_t k = 0; k < frequencies; ++k) {
      const double hz = static_cast<double>(k * sample_rate) / static_cast<double>(window);
      const double rising = (hz - corner[0]) / (corner[1] - corner[0]);
      const double falling = (corner[2] - hz) / (corner[2] - corner[1]);
      const auto height =
          static_cast<float>(std::max(0.0, std::min(rising, falling)));  // rounded here, as librosa does
      *out++ = static_cast<float>(height * (2.0 / (corner[2] - corner[0])));
    }
  }
  return filters;
}

/// Returns the filters from 0 Hz to half the sample rate.
inline at::Tensor slaney_mel_filters(std::int64_t bins, std::int64_t window, std::int64_t sample_rate) {
  return slaney_mel_filters(bins, window, sample_rate, 0, static_cast<double>(sample_rate) / 2);
}

}  // namespace looptorch::audio
