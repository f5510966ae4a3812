// SPDX-License-Identifier: MIT
// Whisper's audio encoder: two convolutions, of which the second halves the number of frames, fixed
// sinusoidal positions, and pre-norm Transformer layers. It takes any number of mel frames up to the 3000 of
// a 30 s window, and a 4 s clip costs at most a seventh of a padded one. Published weights have seen only
// clips padded to 30 s, and adapt to shorter ones in a few steps of training: transcribe with the length with
// which you fine-tuned.
//
// Shapes: B batch, M mel bins, T mel frames, S = ceil(T / 2) positions, D width of the model.
#pragma once

#include <looptorch/layers/feed_forward.hpp>
#include <looptorch/policies/checkpointed.hpp>

#include "attention.hpp"
#include "config.hpp"

#include <cmath>

namespace whisper {

/// Returns the sinusoid table `[length, width]` of the encoder: sines in the first half of the channels,
/// cosines in the second.
inline at::Tensor sinusoids(int64_t length, int64_t width) {
  TORCH_CHECK(width >= 4 && width % 2 == 0, "sinusoids: the width must be even and at least 4, not ", width);
  const double step = std::log(10'000.0) / static_cast<double>(width / 2 - 1);
  auto frequencies = at::exp(at::arange(width / 2, at::kFloat) * -step);
  auto angles = at::arange(length, at::kFloat).unsqueeze(1) * frequencies;
  return at::cat({angles.sin(), angles.cos()}, 1);
}

/// One pre-norm encoder block: self-attention, then a GELU feed-forward layer.
class EncoderLayerImpl : public torch::nn::Module {
 public:
  explicit EncoderLayerImpl(const WhisperConfig& config) {
    const auto width = config.d_model;
    self_attn = register_module("self_attn", Attention(width, config.encoder_attention_heads));
    self_attn_layer_norm = register_module("self_attn_layer_norm", norm(width));
    fc1 = register_module("fc1", Projection(width, config.encoder_ffn_dim));
    fc2 = register_module("fc2", Projection(config.encoder_ffn_dim, width));
    final_layer_norm = register_module("final_layer_norm", norm(width));
  }

  [[nodiscard]] at::Tensor forward(at::Tensor x_BSD) {
    const auto [queries, source] = self_attn->project_all(self_attn_layer_norm, x_BSD);
    x_BSD = self_attn->attend(queries, source, Mask{}, x_BSD);
    return looptorch::feed_forward(x_BSD, final_layer_norm, fc1, fc2);
  }

 private:
  static torch::nn::LayerNorm norm(int64_t width) {
    return torch::nn::LayerNorm(torch::nn::LayerNormOptions({width}));
  }

  Attention self_attn{nullptr};
  torch::nn::LayerNorm self_attn_layer_norm{nullptr}, final_layer_norm{nullptr};
  Projection fc1{nullptr}, fc2{nullptr};
};
TORCH_MODULE(EncoderLayer);

/// Maps log-mel frames `[B, M, T]` to states `[B, ceil(T/2), D]`. The positions are a table, not trained.
class EncoderImpl : public torch::nn::Module {
 public:
  explicit EncoderImpl(const WhisperConfig& config) {
    const auto width = config.d_model;
    conv1 = register_module("conv1", convolution(config.num_mel_bins, width, /*stride=*/1));
    conv2 = register_module("conv2", convolution(width, width, /*stride=*/2));
    auto positions = torch::nn::EmbeddingOptions(config.max_source_positions, width)
                         ._weight(sinusoids(config.max_source_positions, width));
    embed_positions = register_module("embed_positions", torch::nn::Embedding(positions));
    embed_positions->weight.requires_grad_(false);
    layers = register_module("layers", torch::nn::ModuleList());
    for (int64_t i = 0; i < config.encoder_layers; ++i)
      layers->push_back(looptorch::Checkpointed<EncoderLayer>(config));
    layer_norm = register_module("layer_norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})));
  }

  /// Computes in the weights' type. Throws c10::Error for more frames than the positions cover.
  [[nodiscard]] at::Tensor forward(const at::Tensor& mel_BMT) {
    const looptorch::CheckpointOptions options{.mode = first_layer().checkpoint.mode, .random_state = false};
    auto x_BDS = looptorch::checkpoint(
        options, [this](const at::Tensor& mel_BMT) { return stem(mel_BMT); },
        mel_BMT.to(conv1->weight.scalar_type()));
    const auto length = x_BDS.size(2), limit = embed_positions->weight.size(0);
    TORCH_CHECK(length <= limit, "encoder: ", mel_BMT.size(2), " mel frames are more than its ", 2 * limit);
    // The first operand decides the layout: contiguous, as the layers take it without copies.
    auto x_BSD = embed_positions->weight.narrow(0, 0, length) + x_BDS.transpose(1, 2);
    for (const auto& layer : *layers)
      x_BSD = layer->as<looptorch::Checkpointed<EncoderLayer>>()->forward(x_BSD);
    return layer_norm(x_BSD);
  }

 private:
  /// Applies the convolutions, which are recomputed as the layers are.
  [[nodiscard]] at::Tensor stem(const at::Tensor& mel_BMT) {
    const auto apply = [](torch::nn::Conv1d& convolution, const at::Tensor& x) { return convolution(x); };
    const auto x_BDT = looptorch::keep_product(apply, conv1, mel_BMT);
    return at::gelu(looptorch::keep_product(apply, conv2, at::gelu(x_BDT)));
  }
  [[nodiscard]] looptorch::Checkpointed<EncoderLayer>::Impl& first_layer() {
    return *layers[0]->as<looptorch::Checkpointed<EncoderLayer>>();
  }

  static torch::nn::Conv1d convolution(int64_t in, int64_t out, int64_t stride) {
    return torch::nn::Conv1d(torch::nn::Conv1dOptions(in, out, 3).stride(stride).padding(1));
  }

  torch::nn::Conv1d conv1{nullptr}, conv2{nullptr};
  torch::nn::Embedding embed_positions{nullptr};
  torch::nn::ModuleList layers{nullptr};
  torch::nn::LayerNorm layer_norm{nullptr};
};
TORCH_MODULE(Encoder);

}  // namespace whisper
