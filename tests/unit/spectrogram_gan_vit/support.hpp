// SPDX-License-Identifier: MIT
// What the tests of the spectrogram GAN share: a tiny model in fp64 and batches made up for it.
#pragma once

#include "support/precompiled.hpp"

#include <spectrogram_gan_vit/gan/model.hpp>

#include <cstdint>
#include <vector>

namespace spectrogram_gan_test {

/// 16 mel bins, 40 frames; 16 latent numbers, so that noise drawn in parts is the noise drawn at once.
inline spectrogram_gan::GanConfig tiny_config() {
  return {.n_mels = 16, .frames = 40, .latent = 16, .channels = 8, .seed_rows = 2, .seed_columns = 4};
}

inline spectrogram_gan::Gan tiny_gan(const spectrogram_gan::GanConfig& config = tiny_config()) {
  torch::manual_seed(7);
  spectrogram_gan::Gan gan(config);
  gan->to(torch::kDouble);
  return gan;
}

struct Batch {
  at::Tensor spectrograms_B1MF;
  at::Tensor conditions_B2;
};

/// Pictures whose brightness follows the first condition, in fp64.
inline std::vector<Batch> batches(std::int64_t count, std::int64_t size,
                                  const spectrogram_gan::GanConfig& config = tiny_config()) {
  torch::manual_seed(3);
  std::vector<Batch> result;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto conditions_B2 = at::rand({size, 2}, at::kDouble) * 2 - 1;
    const auto noise = at::randn({size, 1, config.n_mels, config.frames}, at::kDouble);
    result.push_back({noise + 2 * conditions_B2.select(1, 0).view({size, 1, 1, 1}), conditions_B2});
  }
  return result;
}

/// Batches `begin` to `end` as one.
inline Batch join(const std::vector<Batch>& parts, std::size_t begin, std::size_t end) {
  std::vector<at::Tensor> spectrograms, conditions;
  for (std::size_t i = begin; i < end; ++i)
    spectrograms.push_back(parts[i].spectrograms_B1MF), conditions.push_back(parts[i].conditions_B2);
  return {at::cat(spectrograms), at::cat(conditions)};
}

namespace gan = spectrogram_gan;

}  // namespace spectrogram_gan_test
