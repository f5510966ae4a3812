// SPDX-License-Identifier: MIT
// Computes the level in decibels of each 10 ms of a sound, from which voice_activity.hpp finds speech. A
// level takes 4 bytes: 14 MB for 10 hours.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace whisper {

/// The level of each mel frame's 160 samples.
class SoundLevels {
 public:
  static constexpr std::size_t kSamples = 160;  ///< samples of a frame
  static constexpr float kSilence = -120;       ///< dB, the lowest level

  /// Appends samples, float32 `[T]` on the CPU. An incomplete frame waits for the next samples.
  void add(const at::Tensor& samples_T) {
    const auto* sample = samples_T.const_data_ptr<float>();
    for (std::int64_t i = 0; i < samples_T.numel(); ++i) {
      energy_ += static_cast<double>(sample[i]) * sample[i];
      if (++count_ == kSamples) close_frame();
    }
  }

  /// Returns the level of each whole frame, in dB of a full-scale square wave.
  [[nodiscard]] const std::vector<float>& decibels() const { return decibels_; }

 private:
  void close_frame() {
    const double level = 10 * std::log10(energy_ / static_cast<double>(kSamples) + 1e-12);
    decibels_.push_back(std::max(kSilence, static_cast<float>(level)));
    energy_ = 0, count_ = 0;
  }

  std::vector<float> decibels_;
  double energy_ = 0;
  std::size_t count_ = 0;
};

}  // namespace whisper
