// SPDX-License-Identifier: MIT
// The discriminator: tells real spectrograms of an emotion from generated ones, and predicts their emotion.
// Four convolutions of stride 2 compute features, which are judged together with the emotion. All weights are
// normalised to spectral norm 1, except those that embed and predict the emotion.
//
// Shapes: B batch, M mel bins, F frames.
#pragma once

#include <looptorch/base/error.hpp>

#include "condition_embedding.hpp"
#include "config.hpp"
#include "spectral_norm.hpp"

#include <torch/torch.h>

#include <cmath>
#include <cstdint>

namespace spectrogram_gan {

/// A discriminator's result for spectrograms: whether they are real, and their valence and arousal.
struct Judgement {
  at::Tensor logits_B, emotions_B2;
};

class DiscriminatorImpl : public torch::nn::Module {
 public:
  explicit DiscriminatorImpl(const GanConfig& config) : config_(config) {
    const auto channels = config.channels;
    std::int64_t rows = config.n_mels;
    for (std::int64_t from = 1, to = channels / 8; to <= channels; from = to, to *= 2, rows /= 2)
      convolutions->push_back(SpectralConv2d(torch::nn::Conv2dOptions(from, to, 4).stride(2).padding(1)));
    register_module("convolutions", convolutions);
    condition = register_module("condition", ConditionEmbedding(channels));
    hidden = register_module("hidden", SpectralLinear(2 * channels * rows + channels, channels));
    output = register_module("output", SpectralLinear(channels, 1));
    emotion = register_module("emotion", torch::nn::Linear(2 * channels * rows, 2));
  }

  /// Converts `[B, 1, M, F]` and `[B, 2]` to logits `[B]`, above 0 for spectrograms judged real. Throws
  /// UsageError for other shapes.
  at::Tensor forward(const at::Tensor& spectrograms_B1MF, const at::Tensor& conditions_B2) {
    return judge(spectrograms_B1MF, conditions_B2).logits_B;
  }

  /// Returns the logits, and the emotion predicted from the spectrograms alone.
  Judgement judge(const at::Tensor& spectrograms_B1MF, const at::Tensor& conditions_B2) {
    check(spectrograms_B1MF, conditions_B2);
    at::Tensor x = spectrograms_B1MF;
    for (const auto& convolution : *convolutions)
      x = at::leaky_relu(convolution->as<SpectralConv2d>()->forward(x), 0.2);
    // Which sounds there are matters, but not when: keeps their mean and deviation over time, and the whole
    // mel axis.
    const auto [variance, mean] = at::var_mean(x, at::IntArrayRef{3}, /*unbiased=*/false);
    const auto pooled = at::cat({mean.flatten(1), (variance + 1e-5).sqrt().flatten(1)}, 1);
    const auto wanted = condition(conditions_B2);
    const auto h = at::leaky_relu(hidden(at::cat({pooled, wanted}, 1)), 0.2);
    // Adds a projection to the concatenation (Miyato and Koyama, 2018): the features' component along the
    // emotion.
    const auto match = (h * wanted).sum(1) / std::sqrt(static_cast<double>(h.size(1)));
    const auto type = output->weight.scalar_type();
    // Convolutions of norm 1 shrink the features, so the emotion is read from their pattern, not their size.
    return {(output(h).squeeze(1) + match).to(type),
            emotion(at::layer_norm(pooled, {pooled.size(1)})).to(type)};
  }

  torch::nn::ModuleList convolutions;
  ConditionEmbedding condition{nullptr};
  SpectralLinear hidden{nullptr}, output{nullptr};
  torch::nn::Linear emotion{nullptr};

 private:
  void check(const at::Tensor& spectrograms, const at::Tensor& conditions_B2) const {
    if (spectrograms.dim() == 4 && spectrograms.size(1) == 1 && spectrograms.size(2) == config_.n_mels &&
        spectrograms.size(3) == config_.frames &&
        conditions_B2.sizes() == at::IntArrayRef({spectrograms.size(0), 2}))
      return;
    throw looptorch::UsageError(looptorch::message(
        "Discriminator: expected spectrograms [B, 1, ", config_.n_mels, ", ", config_.frames,
        "] and conditions [B, 2], got ", spectrograms.sizes(), " and ", conditions_B2.sizes()));
  }

  GanConfig config_;
};
TORCH_MODULE(Discriminator);

}  // namespace spectrogram_gan
