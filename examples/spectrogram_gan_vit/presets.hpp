// SPDX-License-Identifier: MIT
// Settings by the memory of the graphics card, from the project that this example follows.
#pragma once

#include <looptorch/base/error.hpp>

#include <algorithm>
#include <array>
#include <cstdint>

namespace spectrogram_gan {

struct GpuPreset {
  std::int64_t gigabytes;
  std::int64_t batch_size;
  std::int64_t n_mels;
  std::int64_t synthetic;  ///< spectrograms to generate for later training
};

inline constexpr std::array kGpuPresets{
    GpuPreset{.gigabytes = 8, .batch_size = 12, .n_mels = 96, .synthetic = 1500},
    GpuPreset{.gigabytes = 12, .batch_size = 16, .n_mels = 128, .synthetic = 2000},
    GpuPreset{.gigabytes = 16, .batch_size = 24, .n_mels = 128, .synthetic = 3000},
    GpuPreset{.gigabytes = 24, .batch_size = 48, .n_mels = 128, .synthetic = 5000},
};

/// The preset for an unnamed card.
inline constexpr const GpuPreset& kDefaultPreset = kGpuPresets[2];

/// Returns the steps between two flushes of the allocator's cache. That project flushes every 10 batches, and
/// a step here has `batches_in_step` of them.
[[nodiscard]] constexpr std::int64_t steps_between_flushes(std::int64_t batches_in_step) {
  return std::max<std::int64_t>(1, 10 / batches_in_step);
}

/// Returns the preset of a size. Throws UsageError for a size that is not in the table.
[[nodiscard]] inline const GpuPreset& gpu_preset(std::int64_t gigabytes) {
  for (const auto& preset : kGpuPresets)
    if (preset.gigabytes == gigabytes) return preset;
  throw looptorch::UsageError(
      looptorch::message("--gpu-memory: there are settings for 8, 12, 16 and 24 GB, not for ", gigabytes));
}

}  // namespace spectrogram_gan
