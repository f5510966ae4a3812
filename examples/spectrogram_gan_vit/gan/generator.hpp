// SPDX-License-Identifier: MIT
// The generator: converts noise and an emotion to a spectrogram. Normalises groups of channels (GroupNorm),
// not batches: statistics over a batch would make a window of micro-batches differ from one large batch.
//
// Shapes: B batch, Z latent numbers, M mel bins, F frames, I inputs and O outputs of a convolution.
#pragma once

#include <looptorch/base/error.hpp>

#include "channel_attention.hpp"
#include "condition_embedding.hpp"
#include "config.hpp"

#include <torch/torch.h>

#include <cstdint>
#include <vector>

namespace spectrogram_gan {

/// Converts a picture to one of twice the height and width, with half the channels.
class UpsamplingBlockImpl : public torch::nn::Module {
 public:
  explicit UpsamplingBlockImpl(std::int64_t channels) {
    const auto half = channels / 2;
    convolution = register_module(
        "convolution",
        torch::nn::ConvTranspose2d(
            torch::nn::ConvTranspose2dOptions(channels, half, 4).stride(2).padding(1).bias(false)));
    begin_smooth(convolution->weight);
    norm = register_module("norm", torch::nn::GroupNorm(half % 8 == 0 ? half / 8 : 1, half));
    attention = register_module("attention", ChannelAttention(half));
  }

  at::Tensor forward(const at::Tensor& x) { return attention(at::leaky_relu(norm(convolution(x)), 0.2)); }

  torch::nn::ConvTranspose2d convolution{nullptr};
  torch::nn::GroupNorm norm{nullptr};
  ChannelAttention attention{nullptr};

 private:
  /// Initialises the weights as a bilinear interpolation of mixed channels, plus a little noise. Random
  /// weights would treat the four pixels made from one differently, which causes the chequered pattern of
  /// untrained generators.
  static void begin_smooth(at::Tensor& weight_IO44) {
    const torch::NoGradGuard no_grad;
    const auto slope = at::tensor({0.25, 0.75, 0.75, 0.25}, weight_IO44.options().requires_grad(false));
    const auto mixture_IO11 = weight_IO44.narrow(2, 0, 1).narrow(3, 0, 1).clone() * 4;
    weight_IO44.mul_(0.25).add_(mixture_IO11 * at::outer(slope, slope));
  }
};
TORCH_MODULE(UpsamplingBlock);

/// The generator. Its output is unbounded: z-scored spectrograms far exceed 1, which a tanh would cut off.
class GeneratorImpl : public torch::nn::Module {
 public:
  explicit GeneratorImpl(const GanConfig& config) : config_(config) {
    const auto channels = config.channels;
    condition = register_module("condition", ConditionEmbedding(channels));
    seed = register_module("seed", torch::nn::Linear(config.latent + channels,
                                                     channels * config.seed_rows * config.seed_columns));
    for (std::int64_t i = 0; i < 3; ++i) blocks->push_back(UpsamplingBlock(channels >> i));
    register_module("blocks", blocks);
    const auto narrow = channels / 8;
    const auto convolution = [](std::int64_t from, std::int64_t to) {
      return torch::nn::Conv2d(torch::nn::Conv2dOptions(from, to, 3).padding(1));
    };
    refine = register_module("refine", convolution(narrow, narrow));
    output = register_module("output", convolution(narrow, 1));
  }

  /// Converts `[B, Z]` and `[B, 2]` to `[B, 1, M, F]`. Throws UsageError for other shapes.
  at::Tensor forward(const at::Tensor& z_BZ, const at::Tensor& conditions_B2) {
    check(z_BZ, conditions_B2);
    auto x = at::leaky_relu(seed(at::cat({z_BZ, condition(conditions_B2)}, 1)), 0.2)
                 .view({-1, config_.channels, config_.seed_rows, config_.seed_columns});
    x = at::leaky_relu(refine(resized(blocks->forward(x))), 0.2);
    return output(x).to(output->weight.scalar_type());
  }

  [[nodiscard]] const GanConfig& config() const { return config_; }

  ConditionEmbedding condition{nullptr};
  torch::nn::Linear seed{nullptr};
  torch::nn::Sequential blocks;
  torch::nn::Conv2d refine{nullptr}, output{nullptr};

 private:
  [[nodiscard]] at::Tensor resized(const at::Tensor& x) const {
    const std::vector<std::int64_t> size{config_.n_mels, config_.frames};
    return x.sizes().slice(2) == at::IntArrayRef(size)
               ? x
               : at::upsample_bilinear2d(x, size, /*align_corners=*/false);
  }

  void check(const at::Tensor& z_BZ, const at::Tensor& conditions_B2) const {
    if (z_BZ.dim() == 2 && z_BZ.size(1) == config_.latent &&
        conditions_B2.sizes() == at::IntArrayRef({z_BZ.size(0), 2}))
      return;
    throw looptorch::UsageError(looptorch::message("Generator: expected noise [B, ", config_.latent,
                                                   "] and conditions [B, 2], got ", z_BZ.sizes(), " and ",
                                                   conditions_B2.sizes()));
  }

  GanConfig config_;
};
TORCH_MODULE(Generator);

}  // namespace spectrogram_gan
