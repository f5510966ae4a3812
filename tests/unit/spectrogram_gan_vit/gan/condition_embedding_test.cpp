// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <spectrogram_gan_vit/gan/condition_embedding.hpp>

TEST_CASE("An emotion becomes a vector of mean 0 and variance 1, by two linear layers") {
  torch::manual_seed(1);
  spectrogram_gan::ConditionEmbedding embedding(8);
  CHECK(embedding->hidden->weight.sizes() == at::IntArrayRef({4, 2}));
  const auto conditions_B2 = at::rand({5, 2}) * 2 - 1;
  const auto vectors = embedding(conditions_B2);
  const auto hidden =
      at::leaky_relu(at::linear(conditions_B2, embedding->hidden->weight, embedding->hidden->bias), 0.2);
  const auto output = at::linear(hidden, embedding->output->weight, embedding->output->bias);
  const auto centred = output - output.mean(1, true);
  CHECK(torch::allclose(vectors, centred / (centred.square().mean(1, true) + 1e-5).sqrt(), 1e-4, 1e-5));
  CHECK(vectors.mean(1).abs().max().item<double>() < 1e-5);
  CHECK_FALSE(torch::allclose(vectors[0], vectors[1]));
}
