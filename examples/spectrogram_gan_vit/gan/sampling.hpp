// SPDX-License-Identifier: MIT
// Generates spectrograms with a trained generator, for given or drawn emotions, and converts them to sound.
// gan_sample is made of these functions.
//
// Shapes: B batch, N training songs, Z latent numbers, M mel bins, F frames, T samples.
#pragma once

#include <looptorch/base/random.hpp>

#include "../clips/spectrogram.hpp"
#include "../sound/griffin_lim.hpp"
#include "../sound/mel_inverse.hpp"
#include "generator.hpp"

#include <ATen/CPUGeneratorImpl.h>
#include <torch/torch.h>

#include <cstdint>
#include <optional>
#include <vector>

namespace spectrogram_gan {

namespace detail {

/// Returns `count` rows, from `first` on, of an endless table of normal numbers. Each row has a generator of
/// its own.
[[nodiscard]] inline at::Tensor normal_rows(std::uint64_t seed, std::int64_t first, std::int64_t count,
                                            std::int64_t width) {
  std::vector<at::Tensor> rows;
  for (auto i = first; i < first + count; ++i) {
    const auto own_seed = looptorch::derive_seed(seed, static_cast<std::uint64_t>(i));
    const std::optional<at::Generator> generator = at::make_generator<at::CPUGeneratorImpl>(own_seed);
    rows.push_back(at::randn({width}, generator, at::TensorOptions(at::kFloat)));
  }
  return at::stack(rows);
}

}  // namespace detail

/// The emotion that samples should express. A missing part is drawn for each sample.
struct WantedConditions {
  std::optional<double> valence, arousal;
};

/// Returns the labels `[K, 2]` to draw from. If one part of the emotion is given, these are the tenth of all
/// labels that is nearest to it, so that the other part fits it; else all labels.
[[nodiscard]] inline at::Tensor labels_near(const at::Tensor& labels_N2, const WantedConditions& wanted) {
  if (wanted.valence.has_value() == wanted.arousal.has_value()) return labels_N2;
  const auto distances_N = wanted.valence ? (labels_N2.select(1, 0) - *wanted.valence).abs()
                                          : (labels_N2.select(1, 1) - *wanted.arousal).abs();
  const auto nearest_N = at::argsort(distances_N, /*stable=*/true, /*dim=*/0);
  return labels_N2.index_select(0, nearest_N.narrow(0, 0, (labels_N2.size(0) + 9) / 10));
}

/// Returns the emotions `[count, 2]` of the samples from `first` on of a seed. Draws them from `labels_N2`,
/// the labels of the training songs.
[[nodiscard]] inline at::Tensor draw_conditions(const at::Tensor& labels_N2, std::uint64_t seed,
                                                std::int64_t first, std::int64_t count,
                                                const WantedConditions& wanted = {}) {
  using looptorch::derive_seed;
  constexpr std::uint64_t kConditions = 1;  // seeds the emotions apart from the noise
  const auto labels_K2 = labels_near(labels_N2, wanted);
  auto conditions_B2 = at::empty({count, 2});
  for (std::int64_t i = 0; i < count; ++i) {
    const auto number = derive_seed(derive_seed(seed, kConditions), static_cast<std::uint64_t>(first + i));
    conditions_B2[i].copy_(labels_K2[static_cast<std::int64_t>(looptorch::uniform_from(number) *
                                                               static_cast<double>(labels_K2.size(0)))]);
  }
  if (wanted.valence) conditions_B2.select(1, 0).fill_(*wanted.valence);
  if (wanted.arousal) conditions_B2.select(1, 1).fill_(*wanted.arousal);
  return conditions_B2;
}

/// Returns spectrograms `[B, 1, M, F]` on the CPU, z-scored, for `conditions_B2`: the samples from `first` on
/// of a seed, in eval mode. A sample does not depend on the batch's size, as far as convolutions do not.
[[nodiscard]] inline at::Tensor draw_samples(Generator& generator, std::uint64_t seed, std::int64_t first,
                                             const at::Tensor& conditions_B2) {
  const torch::NoGradGuard no_grad;
  generator->eval();
  const auto device = generator->seed->weight.device();
  const auto z_BZ = detail::normal_rows(seed, first, conditions_B2.size(0), generator->config().latent);
  return generator(z_BZ.to(device), conditions_B2.to(device)).cpu();
}

/// Returns sound `[T]` at 22.05 kHz that has approximately this z-scored spectrogram `[M, F]`. The loudest
/// sample is 0.9. Takes two seconds for 30 s of sound on a slow core.
[[nodiscard]] inline at::Tensor sound_of(const at::Tensor& spectrogram_MF, const DecibelScale& scale,
                                         std::uint64_t seed) {
  constexpr double kLoudest = 60, kQuietest = -160;  // dB; bounds for extreme values
  const auto decibels_MF = scale.to_decibels(spectrogram_MF).clamp(kQuietest, kLoudest);
  const MelInverse to_magnitude(mel_options({.mel_bins = spectrogram_MF.size(0)}));
  const GriffinLim to_sound({.window = 2048, .hop = SpectrogramOptions::kHop});
  const auto samples_T = to_sound(to_magnitude(decibels_MF), seed);
  return samples_T * (0.9 / samples_T.abs().max().clamp_min(1e-6));
}

}  // namespace spectrogram_gan
