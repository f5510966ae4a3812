// SPDX-License-Identifier: MIT
// The objective of vit_train: a weighted squared error of valence and arousal, with mixup on request (Zhang
// et al. 2018). Mixup blends each clip and its labels with the next clip of the batch, so that the model sees
// more clips than there are. It costs a copy of the batch.
//
// Shapes: B batch, M mel bins, F frames.
#pragma once

#include <looptorch/objective/loss.hpp>

#include "../clips/data.hpp"
#include "model.hpp"

#include <torch/torch.h>

namespace spectrogram_vit {

using spectrogram_gan::Batch;

/// The shares of the two squared errors in the loss, as in the project that this example follows: valence is
/// harder to predict.
struct LossWeights {
  double valence = 0.6, arousal = 0.4;
};

/// Returns the weighted mean squared error of `[B, 2]`, in the type of `wanted_B2`.
[[nodiscard]] inline at::Tensor emotion_loss(const at::Tensor& predicted_B2, const at::Tensor& wanted_B2,
                                             LossWeights weights = {}) {
  const auto errors_2 = (predicted_B2.to(wanted_B2.scalar_type()) - wanted_B2).square().mean(0);
  return weights.valence * errors_2[0] + weights.arousal * errors_2[1];
}

/// Returns each clip and its labels times `share`, a number, plus the next clip's times the rest; the last
/// clip's next is the first.
[[nodiscard]] inline Batch mix(const Batch& batch, const at::Tensor& share) {
  const auto blend = [&](const at::Tensor& x) {
    return at::lerp(x.roll(-1, 0), x, share.to(x.scalar_type()));
  };
  return {blend(batch.spectrograms_B1MF), blend(batch.conditions_B2)};
}

/// Draws a share from Beta(alpha, alpha), an fp64 number on the device, by the device's generator: the host
/// does not wait, a CUDA graph draws anew in each replay, and a resumed run draws the same.
[[nodiscard]] inline at::Tensor draw_share(double alpha, at::Device device) {
  const auto gammas = at::_standard_gamma(at::full({2}, alpha, at::TensorOptions(device).dtype(at::kDouble)));
  const auto sum = gammas[0] + gammas[1];
  return at::where(sum > 0, gammas[0] / sum, 1.0);  // both are 0 for the smallest alphas
}

/// The objective for a Trainer: the loss of a batch, mixed if `mixup` is above 0.
struct ViTObjective {
  double mixup = 0;  ///< alpha of the Beta distribution

  looptorch::Loss operator()(ViT& model, const Batch& batch) const {
    const auto [spectrograms_B1MF, conditions_B2] =
        mixup > 0 ? mix(batch, draw_share(mixup, batch.conditions_B2.device())) : batch;
    return {.value = emotion_loss(model(spectrograms_B1MF), conditions_B2), .weight = conditions_B2.size(0)};
  }
};

}  // namespace spectrogram_vit
