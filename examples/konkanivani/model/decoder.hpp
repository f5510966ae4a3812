// SPDX-License-Identifier: MIT
// The attention decoder, one of the model's two heads, which predicts the next character of a text. Its
// Transformer layers have the norm after each part (post-LN), as in PyTorch's TransformerDecoderLayer. Masks
// the padding of texts and of the encoder's states. With a cache, a generated character costs one position
// instead of the whole text.
//
// Shapes: B batch, L characters, T encoder frames, D width, H heads, d = D/H, V vocabulary.
#pragma once

#include <looptorch/layers/linear.hpp>

#include "attention.hpp"
#include "config.hpp"
#include "encoder.hpp"
#include "positions.hpp"

#include <torch/torch.h>

#include <cmath>
#include <vector>

namespace konkanivani {

/// The state that one layer keeps between characters: its own past, and the projected encoder states.
struct LayerCache {
  looptorch::KeyValueCache self;
  KeyValues cross;
};

/// The keys and values of all layers; start with an empty one for each batch of clips.
struct DecoderCache {
  std::vector<LayerCache> layers;
  at::Tensor visible_B11T;  ///< true for states that are not padding
  int64_t length = 0;       ///< characters so far

  /// Keeps the rows that `rows` (int64) lists, in that order. With `same_clips` each row keeps its clip, and
  /// the encoder's states are not moved.
  void select(const at::Tensor& rows, bool same_clips) {
    for (auto& layer : layers) {
      layer.self.select(rows);
      if (!same_clips) layer.cross.select(rows);
    }
    if (!same_clips) visible_B11T = visible_B11T.index_select(0, rows);
  }
};

class DecoderLayerImpl : public torch::nn::Module {
 public:
  explicit DecoderLayerImpl(const ModelConfig& config) : dropout_(config.dropout) {
    const auto width = config.d_model, inner = config.feed_forward * width;
    self_attention = register_module("self_attention", Attention(width, config.heads));
    self_norm = register_module("self_norm", detail::layer_norm(width));
    cross_attention = register_module("cross_attention", Attention(width, config.heads));
    cross_norm = register_module("cross_norm", detail::layer_norm(width));
    up = register_module("up", looptorch::Linear(width, inner));
    down = register_module("down", looptorch::Linear(inner, width));
    norm = register_module("norm", detail::layer_norm(width));
  }

  /// Decodes all characters at once; `earlier_B1LL` and `visible_B11T` are bool.
  [[nodiscard]] at::Tensor forward(const at::Tensor& x_BLD, const at::Tensor& states_BTD,
                                   const at::Tensor& earlier_B1LL, const at::Tensor& visible_B11T) {
    return run(x_BLD, self_attention->project_all(x_BLD), earlier_B1LL, cross_attention->project(states_BTD),
               visible_B11T);
  }

  /// Decodes the next character of each row, and adds it to `cache`.
  [[nodiscard]] at::Tensor extend(const at::Tensor& x_B1D, const at::Tensor& states_BTD,
                                  const at::Tensor& visible_B11T, LayerCache& cache) {
    auto self = self_attention->project_all(x_B1D);
    cache.self.append(self.source);
    self.source = cache.self.view();
    if (!cache.cross.keys.defined()) cache.cross = cross_attention->project(states_BTD);
    return run(x_B1D, self, {}, cache.cross, visible_B11T);
  }

 private:
  [[nodiscard]] at::Tensor run(at::Tensor x_BLD, const QueriesKeyValues& self, const at::Tensor& self_mask,
                               const KeyValues& cross, const at::Tensor& cross_mask) {
    x_BLD = self_norm(x_BLD + drop(self_attention->attend(self.queries_BHTd, self.source, self_mask)));
    x_BLD = cross_norm(x_BLD + drop(cross_attention(x_BLD, cross, cross_mask)));
    return norm(x_BLD + drop(down(drop(at::relu(up(x_BLD))))));
  }

  [[nodiscard]] at::Tensor drop(const at::Tensor& x) const { return at::dropout(x, dropout_, is_training()); }

  double dropout_;
  Attention self_attention{nullptr}, cross_attention{nullptr};
  torch::nn::LayerNorm self_norm{nullptr}, cross_norm{nullptr}, norm{nullptr};
  looptorch::Linear up{nullptr}, down{nullptr};
};
TORCH_MODULE(DecoderLayer);

class DecoderImpl : public torch::nn::Module {
 public:
  explicit DecoderImpl(const ModelConfig& config) : config_(config) {
    embedding = register_module("embedding", torch::nn::Embedding(config.vocabulary, config.d_model));
    torch::nn::init::normal_(embedding->weight, 0, 1 / std::sqrt(static_cast<double>(config.d_model)));
    layers = register_module("layers", torch::nn::ModuleList());
    for (int64_t i = 0; i < config.decoder_layers; ++i) layers->push_back(DecoderLayer(config));
    output = register_module("output", looptorch::Linear(config.d_model, config.vocabulary));
  }

  /// Returns scores `[B, L, V]` of the character after each of `characters_BL`. In each row the first
  /// `lengths_B` characters are text, the others padding.
  [[nodiscard]] at::Tensor forward(const at::Tensor& characters_BL, const at::Tensor& lengths_B,
                                   const Encoded& encoded) {
    const auto length = characters_BL.size(1);
    const auto earlier_LL = at::ones({length, length}, characters_BL.options().dtype(at::kBool)).tril();
    const auto earlier_B1LL = earlier_LL & valid_places(lengths_B, length).unsqueeze(1).unsqueeze(1);
    const auto visible_B11T = visible_states(encoded);
    auto x_BLD = embed(characters_BL, 0);
    for (const auto& layer : *layers)
      x_BLD = layer->as<DecoderLayer>()->forward(x_BLD, encoded.states_BTD, earlier_B1LL, visible_B11T);
    return output(x_BLD);
  }

  /// Returns scores `[B, V]` of the character after `next_B`, given the characters in `cache`.
  [[nodiscard]] at::Tensor extend(const at::Tensor& next_B, const Encoded& encoded, DecoderCache& cache) {
    cache.layers.resize(layers->size());
    if (cache.length == 0) cache.visible_B11T = visible_states(encoded);
    auto x_B1D = embed(next_B.unsqueeze(1), cache.length++);
    for (size_t i = 0; i < layers->size(); ++i)
      x_B1D = layers->at<DecoderLayerImpl>(i).extend(x_B1D, encoded.states_BTD, cache.visible_B11T,
                                                     cache.layers[i]);
    return output(x_B1D).squeeze(1);
  }

 private:
  static at::Tensor visible_states(const Encoded& encoded) {
    return valid_places(encoded.lengths_B, encoded.states_BTD.size(1)).unsqueeze(1).unsqueeze(1);
  }

  [[nodiscard]] at::Tensor embed(const at::Tensor& characters_BL, int64_t first) {
    const auto x_BLD = embedding(characters_BL) * std::sqrt(static_cast<double>(config_.d_model));
    const auto table_LD = position_table(first + characters_BL.size(1), config_.d_model, x_BLD.options());
    return at::dropout(x_BLD + table_LD.slice(0, first), config_.dropout, is_training());
  }

  ModelConfig config_;
  torch::nn::Embedding embedding{nullptr};
  torch::nn::ModuleList layers{nullptr};
  looptorch::Linear output{nullptr};
};
TORCH_MODULE(Decoder);

}  // namespace konkanivani
