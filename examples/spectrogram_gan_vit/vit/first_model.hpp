// SPDX-License-Identifier: MIT
// Makes the model that `vit_train` begins with: a pretrained one with a frozen backbone, or random weights.
#pragma once

#include "../presets.hpp"
#include "hugging_face.hpp"
#include "model.hpp"
#include "train_options.hpp"
#include "unfreezing.hpp"

#include <iostream>

namespace spectrogram_vit {

/// Builds the initial model of `options`, and prints where its weights came from. Freezes a pretrained
/// backbone. Draws from LibTorch's generator. Throws what load_hugging_face throws, ConfigError for sizes
/// that make no model, and CommandLineError for a schedule with blocks that the model lacks.
[[nodiscard]] inline ViT first_model(const TrainOptions& options) {
  const auto resize = [&](ViTBackbone& backbone) {
    if (options.image_size > 0) backbone->resize({options.image_size, options.image_size});
  };
  if (options.from_scratch) {
    auto config = size_named(options.preset);
    config.n_mels = options.n_mels;
    config.hidden_dropout = options.dropout;
    ViTBackbone backbone(config);
    resize(backbone);
    return ViT(backbone);
  }
  const auto pretrained = load_hugging_face(options.pretrained, options.n_mels);
  std::cout << options.pretrained.string() << ": " << pretrained.text() << std::endl;
  auto model = pretrained.model;
  (void)options.unfreezing(model->config().layers);  // refuses missing blocks before any data is read
  resize(model->backbone);
  freeze_backbone(model);
  return model;
}

}  // namespace spectrogram_vit
