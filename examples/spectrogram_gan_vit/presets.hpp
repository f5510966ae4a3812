// SPDX-License-Identifier: MIT
// The settings that `--gpu-memory GB` selects in gan_train, gan_sample and vit_train, by the memory of a GPU.
// They come from the project that this example follows.
#pragma once

#include <looptorch/app/command_line.hpp>
#include <looptorch/base/error.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>

namespace spectrogram_gan {

struct GpuPreset {
  std::int64_t gigabytes;
  std::int64_t gan_batch_size;
  std::int64_t vit_batch_size;  ///< batch size of ViT-B/16 at 224 x 224
  std::int64_t n_mels;
  std::int64_t synthetic;  ///< spectrograms to generate as further training clips
};

inline constexpr std::array kGpuPresets{
    GpuPreset{.gigabytes = 8, .gan_batch_size = 12, .vit_batch_size = 6, .n_mels = 96, .synthetic = 1500},
    GpuPreset{.gigabytes = 12, .gan_batch_size = 16, .vit_batch_size = 8, .n_mels = 128, .synthetic = 2000},
    GpuPreset{.gigabytes = 16, .gan_batch_size = 24, .vit_batch_size = 12, .n_mels = 128, .synthetic = 3000},
    GpuPreset{.gigabytes = 24, .gan_batch_size = 48, .vit_batch_size = 24, .n_mels = 128, .synthetic = 5000},
};

/// The preset for an unnamed card.
inline constexpr const GpuPreset& kDefaultPreset = kGpuPresets[2];

/// Micro-batches between two flushes of the allocator's cache, as in that project's code.
inline constexpr std::int64_t kFlushEvery = 10;

/// Returns the largest preset for a card of so many GB. Throws CommandLineError if there is none; the message
/// names the flags to give `instead`.
[[nodiscard]] inline const GpuPreset& gpu_preset(
    std::int64_t gigabytes,
    const char* instead = "--batch-size and --n-mels, and --preflight says before the run what fits") {
  const GpuPreset* fitting = nullptr;
  for (const auto& preset : kGpuPresets)
    if (preset.gigabytes <= gigabytes) fitting = &preset;
  if (fitting) return *fitting;
  throw looptorch::app::CommandLineError(
      looptorch::message("--gpu-memory: the smallest card with settings has ", kGpuPresets[0].gigabytes,
                         " GB, not ", gigabytes, ": in its place give ", instead));
}

/// Returns how many spectrograms to generate: `count` or, if it is 0, the preset's number for a card of so
/// many GB; 16 if both are 0. Throws CommandLineError for a card that is too small.
[[nodiscard]] inline std::int64_t samples_to_draw(std::int64_t count, std::int64_t gigabytes) {
  const auto by_memory = gigabytes > 0 ? gpu_preset(gigabytes, "--count").synthetic : 16;
  return count > 0 ? count : by_memory;
}

/// Adds `--gpu-memory GB`; `settings` names what the program derives from it.
inline void add_gpu_memory_flag(looptorch::app::CommandLine& line, std::int64_t& gigabytes,
                                const std::string& settings) {
  line.option("gpu-memory", "GB", gigabytes,
              settings + " for a GPU of 8, 12, 16 or 24 GB;\nanother size takes the next lower one's",
              {.min = 0});
}

}  // namespace spectrogram_gan
