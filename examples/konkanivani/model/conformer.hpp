// SPDX-License-Identifier: MIT
// The Conformer block (Gulati et al. 2020): a half-step feed-forward layer, self-attention, a convolution
// over time, a second half-step feed-forward layer, and a layer norm. A valid frame's result does not depend
// on the padding after it.
//
// Shapes: B batch, T frames, D width, P = 2T - 1 distances.
#pragma once

#include <looptorch/base/device/accelerator.hpp>
#include <looptorch/layers/feed_forward.hpp>
#include <looptorch/layers/linear.hpp>

#include "attention.hpp"
#include "config.hpp"
#include "masked_batch_norm.hpp"

#include <c10/core/DispatchKeySet.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/torch.h>

#include <optional>

namespace konkanivani {

namespace detail {

inline torch::nn::LayerNorm layer_norm(int64_t width) {
  return torch::nn::LayerNorm(torch::nn::LayerNormOptions({width}));
}

}  // namespace detail

/// The half-step feed-forward layer: x + linear(SiLU(linear(LayerNorm(x)))) / 2.
class FeedForwardImpl : public torch::nn::Module {
 public:
  explicit FeedForwardImpl(const ModelConfig& config) : dropout_(config.dropout) {
    const auto width = config.d_model, inner = config.feed_forward * width;
    norm = register_module("norm", detail::layer_norm(width));
    up = register_module("up", looptorch::Linear(width, inner));
    down = register_module("down", looptorch::Linear(inner, width));
  }

  [[nodiscard]] at::Tensor forward(const at::Tensor& x_BTD) {
    return looptorch::feed_forward(
        x_BTD, norm, up, down,
        {.activation = looptorch::Activation::silu, .dropout = is_training() ? dropout_ : 0, .scale = 0.5});
  }

 private:
  double dropout_;
  torch::nn::LayerNorm norm{nullptr};
  looptorch::Linear up{nullptr}, down{nullptr};
};
TORCH_MODULE(FeedForward);

/// LayerNorm, pointwise convolution with GLU, depthwise convolution, batch norm, SiLU, pointwise convolution.
class ConvolutionModuleImpl : public torch::nn::Module {
 public:
  explicit ConvolutionModuleImpl(const ModelConfig& config) : dropout_(config.dropout) {
    const auto width = config.d_model;
    norm = register_module("norm", detail::layer_norm(width));
    pointwise_in = register_module("pointwise_in", looptorch::Linear(width, 2 * width));
    depthwise = register_module(
        "depthwise",
        torch::nn::Conv1d(
            torch::nn::Conv1dOptions(width, width, config.kernel).padding(config.kernel / 2).groups(width)));
    batch_norm = register_module("batch_norm", MaskedBatchNorm(width));
    pointwise_out = register_module("pointwise_out", looptorch::Linear(width, width));
  }

  /// Takes `valid_BT` as bool. Zeroes padded frames before the convolution, as frames beyond a clip's ends
  /// are.
  [[nodiscard]] at::Tensor forward(const at::Tensor& x_BTD, const at::Tensor& valid_BT) {
    const auto gated_BTD = at::glu(pointwise_in(norm(x_BTD)), -1);
    const auto silent_BTD = gated_BTD.masked_fill(valid_BT.logical_not().unsqueeze(-1), 0);
    const auto mixed_BDT = batch_norm(convolve(silent_BTD), valid_BT.unsqueeze(1));
    return at::dropout(pointwise_out(at::silu(mixed_BDT).transpose(1, 2)), dropout_, is_training());
  }

 private:
  /// Computes the depthwise convolution in two dimensions, over channels that lie last in memory, as they do
  /// here. On a CPU this takes a third of the time of Conv1d's forward and backward, and no copies. It runs
  /// there in full precision, also under autocast: LibTorch 2.11's oneDNN never finishes making its bf16
  /// kernel for some widths, such as 32 and 144. Returns `[B, D, T]`.
  [[nodiscard]] at::Tensor convolve(const at::Tensor& x_BTD) const {
    std::optional<c10::impl::ExcludeDispatchKeyGuard> full_precision;
    const bool on_cpu = looptorch::computes_on_cpu(x_BTD);
    if (on_cpu) full_precision.emplace(c10::autocast_dispatch_keyset);
    const auto wide_BTD = on_cpu ? x_BTD.to(depthwise->weight.scalar_type()) : x_BTD;
    const auto width = x_BTD.size(2), padding = depthwise->weight.size(2) / 2;
    return at::conv2d(wide_BTD.transpose(1, 2).unsqueeze(2), depthwise->weight.unsqueeze(2), depthwise->bias,
                      /*stride=*/1, at::IntArrayRef{0, padding}, /*dilation=*/1, /*groups=*/width)
        .squeeze(2);
  }

  double dropout_;
  torch::nn::LayerNorm norm{nullptr};
  looptorch::Linear pointwise_in{nullptr}, pointwise_out{nullptr};
  torch::nn::Conv1d depthwise{nullptr};
  MaskedBatchNorm batch_norm{nullptr};
};
TORCH_MODULE(ConvolutionModule);

/// One block of the encoder: maps `[B, T, D]` to the same shape.
class ConformerBlockImpl : public torch::nn::Module {
 public:
  explicit ConformerBlockImpl(const ModelConfig& config) : dropout_(config.dropout) {
    first_half = register_module("first_half", FeedForward(config));
    attention_norm = register_module("attention_norm", detail::layer_norm(config.d_model));
    if (config.positions == Positions::relative)
      relative_attention = register_module("attention", RelativeAttention(config.d_model, config.heads));
    else
      attention = register_module("attention", Attention(config.d_model, config.heads));
    convolution = register_module("convolution", ConvolutionModule(config));
    second_half = register_module("second_half", FeedForward(config));
    norm = register_module("norm", detail::layer_norm(config.d_model));
  }

  /// Takes `valid_BT` as bool, with a true in each row, and `distances_PD` of `distance_table`, which is
  /// undefined without relative positions.
  [[nodiscard]] at::Tensor forward(at::Tensor x_BTD, const at::Tensor& valid_BT,
                                   const at::Tensor& distances_PD) {
    x_BTD = first_half(x_BTD);
    const auto attended_BTD = attend(attention_norm(x_BTD), valid_BT.unsqueeze(1).unsqueeze(1), distances_PD);
    x_BTD = x_BTD + at::dropout(attended_BTD, dropout_, is_training());
    x_BTD = x_BTD + convolution(x_BTD, valid_BT);
    return norm(second_half(x_BTD));
  }

 private:
  [[nodiscard]] at::Tensor attend(const at::Tensor& x_BTD, const at::Tensor& visible_B11T,
                                  const at::Tensor& distances_PD) {
    if (relative_attention) return relative_attention(x_BTD, visible_B11T, distances_PD);
    const auto [queries, source] = attention->project_all(x_BTD);
    return attention->attend(queries, source, visible_B11T);
  }

  double dropout_;
  FeedForward first_half{nullptr}, second_half{nullptr};
  Attention attention{nullptr};
  RelativeAttention relative_attention{nullptr};
  ConvolutionModule convolution{nullptr};
  torch::nn::LayerNorm attention_norm{nullptr}, norm{nullptr};
};
TORCH_MODULE(ConformerBlock);

}  // namespace konkanivani
