// SPDX-License-Identifier: MIT
// Whisper's text decoder: learned positions, causal self-attention, attention to the encoder's states. With a
// cache of keys and values, each generated token takes the work of one position, not of the whole prefix.
//
// Shapes: B batch, L tokens, S encoder positions, D width of the model, H heads, V vocabulary.
#pragma once

#include <looptorch/layers/feed_forward.hpp>
#include <looptorch/memory/chunked_cross_entropy.hpp>
#include <looptorch/memory/embedding_rows.hpp>
#include <looptorch/policies/checkpointed.hpp>

#include "attention.hpp"
#include "config.hpp"
#include "linear.hpp"

#include <limits>
#include <optional>
#include <utility>
#include <vector>

namespace whisper {

/// Labels with this value count neither in the loss nor in its mean.
inline constexpr int64_t kIgnored = -100;

/// The state that one decoder layer keeps between calls: its own past and the projected encoder states.
struct LayerCache {
  looptorch::KeyValueCache self;
  KeyValues cross;
};

/// The keys and values of every decoder layer; start with an empty one for each batch of audio.
struct DecoderCache {
  std::vector<LayerCache> layers;

  /// Returns the number of tokens decoded so far.
  [[nodiscard]] int64_t length() const { return layers.empty() ? 0 : layers.front().self.length(); }

  /// Returns the number of rows.
  [[nodiscard]] int64_t rows() const { return layers.empty() ? 0 : layers.front().self.view().keys.size(0); }

  /// Returns the number of clips that the rows attend to.
  [[nodiscard]] int64_t clips() const { return layers.empty() ? 0 : layers.front().cross.keys.size(0); }

  /// Keeps the rows of the batch that `rows` (int64) lists, one for each clip; finished rows are dropped.
  void select(const at::Tensor& rows) {
    select_rows(rows);
    select_clips(rows);
  }

  /// Selects the rows that `rows` (int64) lists, clip by clip, with the same number of rows for each clip.
  void select_rows(const at::Tensor& rows) {
    for (auto& layer : layers) layer.self.select(rows);
  }

  /// Keeps the clips that `clips` (int64) lists.
  void select_clips(const at::Tensor& clips) {
    for (auto& layer : layers) layer.cross.select(clips);
  }
};

/// A cache of fixed size, for a step that a graph can hold: R rows of P positions, and C clips of S
/// positions. In the first dimension, layer i has its keys at 2 i and its values at 2 i + 1.
struct FixedCache {
  at::Tensor self_NRHPd, cross_NCHSd;

  [[nodiscard]] KeyValues self(int64_t layer) const { return of(self_NRHPd, layer); }
  [[nodiscard]] KeyValues cross(int64_t layer) const { return of(cross_NCHSd, layer); }

 private:
  static KeyValues of(const at::Tensor& all, int64_t layer) { return {all[2 * layer], all[2 * layer + 1]}; }
};

/// One pre-norm decoder block: causal self-attention, attention to the encoder, a GELU feed-forward layer.
class DecoderLayerImpl : public torch::nn::Module {
 public:
  explicit DecoderLayerImpl(const WhisperConfig& config) {
    const auto width = config.d_model, heads = config.decoder_attention_heads;
    self_attn = register_module("self_attn", Attention(width, heads));
    self_attn_layer_norm = register_module("self_attn_layer_norm", norm(width));
    encoder_attn = register_module("encoder_attn", Attention(width, heads));
    encoder_attn_layer_norm = register_module("encoder_attn_layer_norm", norm(width));
    fc1 = register_module("fc1", Projection(width, config.decoder_ffn_dim));
    fc2 = register_module("fc2", Projection(config.decoder_ffn_dim, width));
    final_layer_norm = register_module("final_layer_norm", norm(width));
  }

  /// Decodes all tokens at once, for training: `x_BLD` and the encoder's `states_BSD` to `[B, L, D]`.
  [[nodiscard]] at::Tensor forward(const at::Tensor& x_BLD, const at::Tensor& states_BSD) {
    return attend(x_BLD, self_attn->project_all(self_attn_layer_norm, x_BLD), {.is_causal = true},
                  encoder_attn->project(states_BSD));
  }

  /// Decodes all tokens at once, and sets `scores_BHLS` to each head's attention to the states before
  /// softmax.
  [[nodiscard]] at::Tensor forward(const at::Tensor& x_BLD, const at::Tensor& states_BSD,
                                   at::Tensor& scores_BHLS) {
    return attend(x_BLD, self_attn->project_all(self_attn_layer_norm, x_BLD), {.is_causal = true},
                  encoder_attn->project(states_BSD), &scores_BHLS);
  }

  /// Decodes the tokens that follow those in `cache`, and adds them to it: first a prompt of any length, then
  /// one token at a time. The rows of one clip attend to its states together.
  at::Tensor extend(const at::Tensor& x_BLD, const at::Tensor& states_BSD, LayerCache& cache) {
    const bool first = cache.self.length() == 0;
    TORCH_CHECK(first || x_BLD.size(1) == 1,
                "decoder: after the prompt the cache takes one token at a time, not ", x_BLD.size(1));
    auto self = self_attn->project_all(self_attn_layer_norm, x_BLD);
    cache.self.append(self.source);
    self.source = cache.self.view();
    if (first) cache.cross = encoder_attn->project(states_BSD);
    return attend(x_BLD, self, {.is_causal = first}, cache.cross);
  }

  /// Decodes one token of each row, at `position_1`, and writes its key and value into `held` in place.
  /// `mask` shows the positions up to this one.
  at::Tensor extend_at(const at::Tensor& x_R1D, const at::Tensor& position_1, const Mask& mask,
                       KeyValues held, const KeyValues& cross) {
    auto self = self_attn->project_all(self_attn_layer_norm, x_R1D);
    held.keys.index_copy_(2, position_1, self.source.keys);
    held.values.index_copy_(2, position_1, self.source.values);
    self.source = std::move(held);
    return attend(x_R1D, self, mask, cross);
  }

 private:
  static torch::nn::LayerNorm norm(int64_t width) {
    return torch::nn::LayerNorm(torch::nn::LayerNormOptions({width}));
  }

  [[nodiscard]] at::Tensor attend(at::Tensor x_BLD, const QueriesKeyValues& self, const Mask& mask,
                                  const KeyValues& cross, at::Tensor* scores_BHLS = nullptr) {
    x_BLD = self_attn->attend(self.queries_BHTd, self.source, mask, x_BLD);
    const auto rows = x_BLD.size(0), clips = cross.keys.size(0);
    if (scores_BHLS) *scores_BHLS = encoder_attn->scores(encoder_attn_layer_norm(x_BLD), cross.keys);
    if (clips != rows) x_BLD = x_BLD.reshape({clips, -1, x_BLD.size(2)});
    x_BLD = encoder_attn(encoder_attn_layer_norm, x_BLD, cross);
    if (clips != rows) x_BLD = x_BLD.view({rows, -1, x_BLD.size(2)});
    return looptorch::feed_forward(x_BLD, final_layer_norm, fc1, fc2);
  }

  Attention self_attn{nullptr}, encoder_attn{nullptr};
  torch::nn::LayerNorm self_attn_layer_norm{nullptr}, encoder_attn_layer_norm{nullptr},
      final_layer_norm{nullptr};
  Projection fc1{nullptr}, fc2{nullptr};
};
TORCH_MODULE(DecoderLayer);

/// Maps tokens `[B, L]` and the encoder's states `[B, S, D]` to normalised states `[B, L, D]`, which `logits`
/// projects.
class DecoderImpl : public torch::nn::Module {
 public:
  explicit DecoderImpl(const WhisperConfig& config) {
    const auto width = config.d_model;
    embed_tokens = register_module("embed_tokens", torch::nn::Embedding(config.vocab_size, width));
    embed_positions =
        register_module("embed_positions", torch::nn::Embedding(config.max_target_positions, width));
    layers = register_module("layers", torch::nn::ModuleList());
    for (int64_t i = 0; i < config.decoder_layers; ++i)
      layers->push_back(looptorch::Checkpointed<DecoderLayer>(config));
    layer_norm = register_module("layer_norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})));
  }

  [[nodiscard]] at::Tensor forward(const at::Tensor& tokens_BL, const at::Tensor& states_BSD) {
    auto x_BLD = embed(tokens_BL, 0);
    for (const auto& layer : *layers)
      x_BLD = layer->as<looptorch::Checkpointed<DecoderLayer>>()->forward(x_BLD, states_BSD);
    return layer_norm(x_BLD);
  }

  /// Decodes all tokens without recomputation; `use` takes each layer's number, from 0 on, and its attention
  /// to the states before softmax, `[B, H, L, S]`.
  template <class Use>
  [[nodiscard]] at::Tensor forward_watched(const at::Tensor& tokens_BL, const at::Tensor& states_BSD,
                                           const Use& use) {
    auto x_BLD = embed(tokens_BL, 0);
    for (size_t i = 0; i < layers->size(); ++i) {
      at::Tensor scores_BHLS;
      x_BLD = layers[i]->as<DecoderLayer>()->forward(x_BLD, states_BSD, scores_BHLS);
      use(static_cast<int64_t>(i), scores_BHLS);
    }
    return layer_norm(x_BLD);
  }

  /// Decodes the tokens that follow those in `cache`, and adds them to it.
  at::Tensor extend(const at::Tensor& tokens_BL, const at::Tensor& states_BSD, DecoderCache& cache) {
    auto x_BLD = embed(tokens_BL, cache.length());
    cache.layers.resize(layers->size());
    for (size_t i = 0; i < layers->size(); ++i) {
      x_BLD = layers[i]->as<DecoderLayer>()->extend(x_BLD, states_BSD, cache.layers[i]);
    }
    return layer_norm(x_BLD);
  }

  /// Decodes one token of each row, at `position_1` on the device: no shape and no address depends on
  /// it, so that a graph can hold the step. Later positions in `cache` must be finite.
  at::Tensor extend_at(const at::Tensor& tokens_R1, const at::Tensor& position_1, const FixedCache& cache) {
    auto x_R1D = looptorch::embedding_rows(embed_tokens->weight, tokens_R1) +
                 embed_positions->weight.index_select(0, position_1);
    const auto positions_P = at::arange(cache.self_NRHPd.size(3), position_1.options());
    const Mask mask{
        .added =
            at::zeros_like(positions_P, x_R1D.options()).masked_fill_(positions_P > position_1, -kInfinity)};
    for (size_t i = 0; i < layers->size(); ++i) {
      const auto layer = static_cast<int64_t>(i);
      x_R1D = layers[i]->as<DecoderLayer>()->extend_at(x_R1D, position_1, mask, cache.self(layer),
                                                       cache.cross(layer));
    }
    return layer_norm(x_R1D);
  }

  /// Returns the number of layers.
  [[nodiscard]] int64_t depth() const { return static_cast<int64_t>(layers->size()); }
  /// Returns the number of positions.
  [[nodiscard]] int64_t positions() const { return embed_positions->weight.size(0); }

  /// Returns the scores of every token, `[..., D]` to `[..., V]`, by the embedding's own weights
  /// (transformers' `proj_out`).
  [[nodiscard]] at::Tensor logits(const at::Tensor& states_D) {
    return detail::product(states_D, embed_tokens->weight, {}, half_embedding_);
  }

  /// Also holds the weights in 16 bits if that loses nothing: decoding on a CPU then takes less time, and the
  /// decoder half as much memory again. A weight that changes later is multiplied in 32 bits.
  void hold_half_weights() {
    for (const auto& module : modules(/*include_self=*/false))
      if (auto* layer = module->as<PlainProjectionImpl>()) layer->hold_half_weights();
    half_embedding_ = HalfWeights::pack(embed_tokens->weight);
  }

  /// Returns the cross-entropy of the logits of `states_BLD` against `labels_BL`, the mean over labels that
  /// are not kIgnored. The scores of all tokens never exist at once.
  [[nodiscard]] at::Tensor loss(const at::Tensor& states_BLD, const at::Tensor& labels_BL) {
    return looptorch::chunked_cross_entropy(states_BLD, embed_tokens->weight, labels_BL,
                                            {.ignore_index = kIgnored});
  }

 private:
  static constexpr double kInfinity = std::numeric_limits<double>::infinity();

  [[nodiscard]] at::Tensor embed(const at::Tensor& tokens_BL, int64_t start) {
    const auto end = start + tokens_BL.size(1), limit = positions();
    TORCH_CHECK(end <= limit, "decoder: ", end, " tokens are more than its ", limit, " positions");
    return looptorch::embedding_rows(embed_tokens->weight, tokens_BL) +
           embed_positions->weight.slice(0, start, end);
  }

  torch::nn::Embedding embed_tokens{nullptr}, embed_positions{nullptr};
  torch::nn::ModuleList layers{nullptr};
  torch::nn::LayerNorm layer_norm{nullptr};
  std::optional<HalfWeights> half_embedding_;
};
TORCH_MODULE(Decoder);

}  // namespace whisper
