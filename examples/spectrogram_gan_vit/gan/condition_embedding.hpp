// SPDX-License-Identifier: MIT
// Embeds the emotion that a spectrogram should have, valence and arousal, as a vector. Generator and
// discriminator take the vector as an input.
#pragma once

#include <torch/torch.h>

#include <cstdint>

namespace spectrogram_gan {

/// Converts `[B, 2]`, valence and arousal from -1 to 1, to `[B, width]` by way of `width / 2`. Each vector
/// has mean 0 and variance 1, so that it weighs as much as the noise or features beside it.
class ConditionEmbeddingImpl : public torch::nn::Module {
 public:
  explicit ConditionEmbeddingImpl(std::int64_t width)
      : hidden(register_module("hidden", torch::nn::Linear(2, width / 2))),
        output(register_module("output", torch::nn::Linear(width / 2, width))),
        width_(width) {}

  at::Tensor forward(const at::Tensor& conditions_B2) {
    return at::layer_norm(output(at::leaky_relu(hidden(conditions_B2), 0.2)), {width_});
  }

  torch::nn::Linear hidden, output;

 private:
  std::int64_t width_;
};
TORCH_MODULE(ConditionEmbedding);

}  // namespace spectrogram_gan
