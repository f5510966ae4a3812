// SPDX-License-Identifier: MIT
// The encoder: converts log-mel frames to states by a front end, positions and Conformer blocks. Takes each
// clip's length, so that a clip has the same states alone and padded in a batch. To recompute the blocks in
// backward, list lt::Checkpointed<ConformerBlock>{} in the Trainer.
//
// Shapes: B batch, M mel bins, F mel frames, T encoder frames, C channels, D width, P = 2T - 1 distances.
#pragma once

#include <looptorch/layers/linear.hpp>
#include <looptorch/policies/checkpointed.hpp>

#include "conformer.hpp"
#include "positions.hpp"

#include <torch/torch.h>

#include <cmath>
#include <type_traits>

namespace konkanivani {

/// Returns the number of encoder frames for a clip of `mel_frames`, a number or a tensor: one for each
/// `subsampling` (1, 2 or 4) mel frames, rounded up.
template <class Count>
[[nodiscard]] Count encoder_frames(const Count& mel_frames, int64_t subsampling) {
  Count frames = mel_frames;
  for (; subsampling > 1; subsampling /= 2) {
    if constexpr (std::is_integral_v<Count>)
      frames = (frames + 1) / 2;
    else
      frames = (frames + 1).floor_divide(2);
  }
  return frames;
}

namespace detail {

inline at::Tensor silence_padding(const at::Tensor& x_BCFM, const at::Tensor& lengths_B) {
  const auto valid_BF = valid_places(lengths_B, x_BCFM.size(2));
  return x_BCFM.masked_fill(valid_BF.logical_not().unsqueeze(1).unsqueeze(3), 0);
}

}  // namespace detail

/// Two convolutions over time and frequency, then a linear layer. Frames last 20 ms if only the first
/// convolution has stride 2 in time, 40 ms if both have. Halving the frames halves the time of all later
/// layers; CTC needs more frames than characters.
class SubsamplingImpl : public torch::nn::Module {
 public:
  explicit SubsamplingImpl(const ModelConfig& config) {
    constexpr int64_t kChannels = 16;
    first = register_module("first", convolution(1, kChannels, /*stride_in_time=*/2));
    second = register_module("second", convolution(kChannels, kChannels, config.subsampling / 2));
    linear = register_module(
        "linear", looptorch::Linear(kChannels * encoder_frames(config.mel_bins, 4), config.d_model));
  }

  /// Converts `[B, F, M]` to `[B, T, D]`.
  [[nodiscard]] at::Tensor forward(const at::Tensor& mel_BFM, const at::Tensor& lengths_B) {
    const auto half_B = (lengths_B + 1).floor_divide(2);
    const auto mel_B1FM = detail::silence_padding(mel_BFM.unsqueeze(1), lengths_B);
    const auto half_BCFM = detail::silence_padding(at::silu(first(mel_B1FM)), half_B);
    return linear(at::silu(second(half_BCFM)).transpose(1, 2).flatten(2));
  }

 private:
  static torch::nn::Conv2d convolution(int64_t in, int64_t out, int64_t stride_in_time) {
    return torch::nn::Conv2d(torch::nn::Conv2dOptions(in, out, 3).stride({stride_in_time, 2}).padding(1));
  }

  torch::nn::Conv2d first{nullptr}, second{nullptr};
  looptorch::Linear linear{nullptr};
};
TORCH_MODULE(Subsampling);

/// The encoder's result for a batch: states `[B, T, D]`, and the number of each clip's states that are not
/// padding.
struct Encoded {
  at::Tensor states_BTD;
  at::Tensor lengths_B;

  /// Keeps the rows that `rows` (int64) lists, in that order.
  [[nodiscard]] Encoded select(const at::Tensor& rows) const {
    return {states_BTD.index_select(0, rows), lengths_B.index_select(0, rows)};
  }
};

class EncoderImpl : public torch::nn::Module {
 public:
  explicit EncoderImpl(const ModelConfig& config) : config_(config) {
    if (config.subsampling > 1)
      subsampling = register_module("subsampling", Subsampling(config));
    else
      linear = register_module("linear", looptorch::Linear(config.mel_bins, config.d_model));
    blocks = register_module("blocks", torch::nn::ModuleList());
    for (int64_t i = 0; i < config.encoder_layers; ++i)
      blocks->push_back(looptorch::Checkpointed<ConformerBlock>(config));
  }

  /// Encodes `mel_BMF`. `lengths_B` holds the number of unpadded frames of each clip: int64, 1 to F, on the
  /// same device. Its values are checked only on a CPU.
  [[nodiscard]] Encoded forward(const at::Tensor& mel_BMF, const at::Tensor& lengths_B) {
    check(mel_BMF, lengths_B);
    const auto mel_BFM = mel_BMF.transpose(1, 2);
    auto x_BTD = subsampling ? subsampling(mel_BFM, lengths_B) : linear(mel_BFM);
    const auto encoded_lengths_B = encoder_frames(lengths_B, config_.subsampling);
    const auto valid_BT = valid_places(encoded_lengths_B, x_BTD.size(1));
    x_BTD = x_BTD * std::sqrt(static_cast<double>(config_.d_model));
    at::Tensor distances_PD;
    if (config_.positions == Positions::relative)
      distances_PD = distance_table(x_BTD.size(1), config_.d_model, x_BTD.options());
    else
      x_BTD = x_BTD + position_table(x_BTD.size(1), config_.d_model, x_BTD.options());
    x_BTD = at::dropout(x_BTD, config_.dropout, is_training());
    for (const auto& block : *blocks)
      x_BTD = block->as<looptorch::Checkpointed<ConformerBlock>>()->forward(x_BTD, valid_BT, distances_PD);
    return {x_BTD, encoded_lengths_B};
  }

 private:
  void check(const at::Tensor& mel_BMF, const at::Tensor& lengths_B) const {
    TORCH_CHECK(mel_BMF.dim() == 3 && mel_BMF.size(1) == config_.mel_bins,
                "encoder: expected mel frames [B, ", config_.mel_bins, ", F], got ", mel_BMF.sizes());
    TORCH_CHECK(lengths_B.sizes() == mel_BMF.sizes().slice(0, 1), "encoder: lengths of shape ",
                lengths_B.sizes(), " for a batch of ", mel_BMF.size(0));
    if (!lengths_B.device().is_cpu()) return;
    TORCH_CHECK(lengths_B.min().item<int64_t>() >= 1 && lengths_B.max().item<int64_t>() <= mel_BMF.size(2),
                "encoder: lengths must lie within 1 and the ", mel_BMF.size(2), " frames given");
  }

  ModelConfig config_;
  Subsampling subsampling{nullptr};
  looptorch::Linear linear{nullptr};
  torch::nn::ModuleList blocks{nullptr};
};
TORCH_MODULE(Encoder);

}  // namespace konkanivani
