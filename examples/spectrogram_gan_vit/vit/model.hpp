// SPDX-License-Identifier: MIT
// A Vision Transformer (Dosovitskiy et al. 2021) that predicts valence and arousal from spectrograms. It
// computes the same numbers as transformers' ViTModel, whose weights hugging_face.hpp loads. Its blocks can
// be recomputed in backward (Checkpointed), which for ViT-B saves most of the activations' memory.
//
// Shapes: B batch, C channels, H rows, W columns, T tokens (the class token, then patches row by row), D
// hidden size, A heads, d = D / A, M mel bins, F frames.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/layers/feed_forward.hpp>
#include <looptorch/layers/joint_linear.hpp>
#include <looptorch/layers/linear.hpp>
#include <looptorch/layers/norm_heads.hpp>
#include <looptorch/memory/keep.hpp>
#include <looptorch/policies/checkpointed.hpp>

#include "config.hpp"
#include "images.hpp"

#include <torch/torch.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace spectrogram_vit {

/// A pre-norm block: self-attention, then a GELU feed-forward layer.
class ViTBlockImpl : public torch::nn::Module {
 public:
  explicit ViTBlockImpl(const ViTConfig& config);

  /// Maps `[B, T, D]` to `[B, T, D]`.
  [[nodiscard]] at::Tensor forward(const at::Tensor& x_BTD);

  /// Returns the attention of each token of `forward`'s input to each token, `[B, A, T, T]`; rows sum to 1.
  [[nodiscard]] at::Tensor attention(const at::Tensor& x_BTD);

 private:
  [[nodiscard]] at::Tensor attend(const at::Tensor& x_BTD);

  std::int64_t heads_;
  double attention_dropout_;
  torch::nn::LayerNorm norm_before{nullptr}, norm_after{nullptr};
  looptorch::Linear query{nullptr}, key{nullptr}, value{nullptr}, out{nullptr}, up{nullptr}, down{nullptr};
  torch::nn::Dropout dropout{nullptr};
};
TORCH_MODULE(ViTBlock);

/// All but the head: transformers' ViTModel without its pooler.
class ViTBackboneImpl : public torch::nn::Module {
 public:
  /// Draws weights as transformers does, from a normal of deviation 0.02. Throws ConfigError for sizes that
  /// make no model.
  explicit ViTBackboneImpl(const ViTConfig& config);

  /// Maps images `[B, C, H, W]` to normalised states `[B, T, D]`. Takes other image sizes than the
  /// configuration's, and interpolates positions for them. Throws UsageError for another C, and for an H or W
  /// that is no multiple of the patch's.
  [[nodiscard]] at::Tensor forward(const at::Tensor& images_BCHW);

  /// Returns the last block's attention, `[B, A, T, T]`.
  [[nodiscard]] at::Tensor attention(const at::Tensor& images_BCHW);

  /// Makes `image` the configuration's size, and interpolates the positions for it. Call it before an
  /// optimizer takes the parameters. Throws ConfigError for a size that is no multiple of the patch's.
  void resize(Extent image);

  [[nodiscard]] const ViTConfig& config() const { return config_; }

 private:
  [[nodiscard]] at::Tensor embed(const at::Tensor& images_BCHW);

  ViTConfig config_;
  at::Tensor class_token_, positions_;
  torch::nn::Conv2d patches_{nullptr};
  torch::nn::Dropout dropout_{nullptr};
  torch::nn::ModuleList blocks_{nullptr};
  torch::nn::LayerNorm norm_{nullptr};
};
TORCH_MODULE(ViTBackbone);

/// Backbone and head, with the normalisation of the spectrograms that they were trained on.
class ViTImpl : public torch::nn::Module {
 public:
  /// Throws ConfigError for sizes that make no model.
  explicit ViTImpl(const ViTConfig& config) : ViTImpl(ViTBackbone(config)) {}
  /// Takes a backbone, and draws a head.
  explicit ViTImpl(ViTBackbone trunk);

  /// Maps spectrograms `[B, 1, M, F]` to valence and arousal `[B, 2]`.
  [[nodiscard]] at::Tensor forward(const at::Tensor& spectrograms_B1MF) {
    return head(backbone(images(spectrograms_B1MF)).select(1, 0));
  }

  /// Returns the last block's attention over `forward`'s input, `[B, A, T, T]`.
  [[nodiscard]] at::Tensor attention(const at::Tensor& spectrograms_B1MF) {
    return backbone->attention(images(spectrograms_B1MF));
  }

  /// Returns the backbone's input, `[B, C, H, W]`.
  [[nodiscard]] at::Tensor images(const at::Tensor& spectrograms_B1MF) {
    return images_of(normalisation(spectrograms_B1MF), config().image, config().channels);
  }

  [[nodiscard]] const ViTConfig& config() const { return backbone->config(); }

  Normalisation normalisation{nullptr};
  ViTBackbone backbone{nullptr};
  looptorch::Linear head{nullptr};
};
TORCH_MODULE(ViT);

/// Returns positions `[1, T, D]` for another grid of patches. Keeps the class token's, and resizes the
/// patches' bicubically, as transformers does with interpolate_pos_encoding.
[[nodiscard]] inline at::Tensor interpolate_positions(const at::Tensor& positions_1TD, Extent from,
                                                      Extent to) {
  if (from == to) return positions_1TD;
  const auto width = positions_1TD.size(2);
  const auto patches_1DHW =
      positions_1TD.slice(1, 1).reshape({1, from.height, from.width, width}).permute({0, 3, 1, 2});
  const auto resized_1DHW =
      at::upsample_bicubic2d(patches_1DHW, {to.height, to.width}, /*align_corners=*/false);
  return at::cat({positions_1TD.slice(1, 0, 1), resized_1DHW.flatten(2).transpose(1, 2)}, 1);
}

// ---- Implementation ----

namespace detail {

[[nodiscard]] inline torch::nn::LayerNorm layer_norm(const ViTConfig& config) {
  return torch::nn::LayerNorm(torch::nn::LayerNormOptions({config.hidden_size}).eps(config.layer_norm_eps));
}

/// Returns a layer with transformers' initial weights.
[[nodiscard]] inline looptorch::Linear linear(std::int64_t in, std::int64_t out, bool bias = true) {
  looptorch::Linear layer(torch::nn::LinearOptions(in, out).bias(bias));
  torch::nn::init::normal_(layer->weight, 0, 0.02);
  if (bias) torch::nn::init::zeros_(layer->bias);
  return layer;
}

}  // namespace detail

inline ViTBlockImpl::ViTBlockImpl(const ViTConfig& config)
    : heads_(config.heads), attention_dropout_(config.attention_dropout) {
  const auto width = config.hidden_size;
  norm_before = register_module("norm_before", detail::layer_norm(config));
  query = register_module("query", detail::linear(width, width, config.qkv_bias));
  key = register_module("key", detail::linear(width, width, config.qkv_bias));
  value = register_module("value", detail::linear(width, width, config.qkv_bias));
  out = register_module("out", detail::linear(width, width));
  norm_after = register_module("norm_after", detail::layer_norm(config));
  up = register_module("up", detail::linear(width, config.intermediate_size));
  down = register_module("down", detail::linear(config.intermediate_size, width));
  dropout = register_module("dropout", torch::nn::Dropout(config.hidden_dropout));
}

inline at::Tensor ViTBlockImpl::attend(const at::Tensor& x_BTD) {
  const auto kernel = [rate = is_training() ? attention_dropout_ : 0.0](
                          const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
    return at::scaled_dot_product_attention(q, k, v, /*attn_mask=*/{}, rate);
  };
  const auto [queries_BATd, keys_BATd, values_BATd] =
      looptorch::norm_heads(x_BTD, heads_, norm_before, query, key, value);
  return looptorch::keep(kernel, queries_BATd, keys_BATd, values_BATd);
}

inline at::Tensor ViTBlockImpl::forward(const at::Tensor& x_BTD) {
  const auto heads_BATd = attend(x_BTD);
  if (!is_training() || dropout->options.p() == 0)
    return looptorch::feed_forward(looptorch::merge_heads(heads_BATd, out, x_BTD), norm_after, up, down);
  const auto attended_BTD = x_BTD + dropout(looptorch::merge_heads(heads_BATd, out));
  return attended_BTD + dropout(down(at::gelu(up(norm_after(attended_BTD)))));
}

inline at::Tensor ViTBlockImpl::attention(const at::Tensor& x_BTD) {
  const auto normed_BTD = norm_before(x_BTD);
  const auto q = looptorch::split_heads(query(normed_BTD), heads_);
  const auto k = looptorch::split_heads(key(normed_BTD), heads_);
  return at::softmax(q.matmul(k.transpose(2, 3)) / std::sqrt(static_cast<double>(q.size(3))), -1);
}

inline ViTBackboneImpl::ViTBackboneImpl(const ViTConfig& config) : config_(config) {
  check_config(config, "ViT");
  const auto width = config.hidden_size;
  const auto token = [&](std::int64_t count) {
    return torch::nn::init::normal_(at::empty({1, count, width}), 0, 0.02);
  };
  class_token_ = register_parameter("class_token", token(1));
  positions_ = register_parameter("positions", token(config.tokens()));
  const torch::ExpandingArray<2> patch{config.patch.height, config.patch.width};
  patches_ = register_module(
      "patches", torch::nn::Conv2d(torch::nn::Conv2dOptions(config.channels, width, patch).stride(patch)));
  torch::nn::init::normal_(patches_->weight, 0, 0.02);
  torch::nn::init::zeros_(patches_->bias);
  dropout_ = register_module("dropout", torch::nn::Dropout(config.hidden_dropout));
  blocks_ = register_module("blocks", torch::nn::ModuleList());
  for (std::int64_t i = 0; i < config.layers; ++i)
    blocks_->push_back(looptorch::Checkpointed<ViTBlock>(config));
  norm_ = register_module("norm", detail::layer_norm(config));
}

inline at::Tensor ViTBackboneImpl::embed(const at::Tensor& images_BCHW) {
  if (images_BCHW.dim() != 4 || images_BCHW.size(1) != config_.channels ||
      images_BCHW.size(2) % config_.patch.height != 0 || images_BCHW.size(3) % config_.patch.width != 0 ||
      images_BCHW.size(2) == 0 || images_BCHW.size(3) == 0)
    throw looptorch::UsageError(looptorch::message(
        "ViT: expected images [B, ", config_.channels, ", H, W] whose H is a multiple of ",
        config_.patch.height, " and whose W is one of ", config_.patch.width, ", got ", images_BCHW.sizes()));
  const Extent grid{images_BCHW.size(2) / config_.patch.height, images_BCHW.size(3) / config_.patch.width};
  const auto patches_BTD = patches_(images_BCHW).flatten(2).transpose(1, 2);
  const auto tokens_BTD = at::cat(
      {class_token_.to(patches_BTD.scalar_type()).expand({images_BCHW.size(0), -1, -1}), patches_BTD}, 1);
  return dropout_(tokens_BTD + interpolate_positions(positions_, config_.grid(), grid));
}

inline at::Tensor ViTBackboneImpl::forward(const at::Tensor& images_BCHW) {
  auto x_BTD = embed(images_BCHW);
  for (const auto& layer : *blocks_) x_BTD = layer->as<looptorch::Checkpointed<ViTBlock>>()->forward(x_BTD);
  return norm_(x_BTD);
}

inline at::Tensor ViTBackboneImpl::attention(const at::Tensor& images_BCHW) {
  auto x_BTD = embed(images_BCHW);
  for (std::size_t i = 0; i + 1 < blocks_->size(); ++i)
    x_BTD = blocks_[i]->as<looptorch::Checkpointed<ViTBlock>>()->forward(x_BTD);
  return blocks_[blocks_->size() - 1]->as<ViTBlock>()->attention(x_BTD);
}

inline void ViTBackboneImpl::resize(Extent image) {
  auto resized = config_;
  resized.image = image;
  check_config(resized, "ViT");
  const torch::NoGradGuard no_grad;
  positions_.set_data(interpolate_positions(positions_, config_.grid(), resized.grid()).clone());
  config_ = resized;
}

inline ViTImpl::ViTImpl(ViTBackbone trunk) {
  backbone = register_module("backbone", std::move(trunk));
  normalisation = register_module("normalisation", Normalisation(config().n_mels));
  head = register_module("head", detail::linear(config().hidden_size, 2));
}

}  // namespace spectrogram_vit
