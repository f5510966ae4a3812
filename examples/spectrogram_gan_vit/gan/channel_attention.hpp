// SPDX-License-Identifier: MIT
// The channel attention of the generator (the channel half of CBAM, Woo et al., 2018): scales each channel by
// a number from 0 to 1 that depends on all channels.
//
// Shapes: B batch, C channels, H rows, W columns.
#pragma once

#include <torch/torch.h>

#include <algorithm>
#include <cstdint>

namespace spectrogram_gan {

class ChannelAttentionImpl : public torch::nn::Module {
 public:
  explicit ChannelAttentionImpl(std::int64_t channels) {
    const auto reduced = std::max<std::int64_t>(channels / 8, 1);
    squeeze = register_module("squeeze",
                              torch::nn::Linear(torch::nn::LinearOptions(channels, reduced).bias(false)));
    excite =
        register_module("excite", torch::nn::Linear(torch::nn::LinearOptions(reduced, channels).bias(false)));
  }

  at::Tensor forward(const at::Tensor& x_BCHW) {
    const auto scores_BC = scores(x_BCHW.mean({2, 3})) + scores(x_BCHW.amax({2, 3}));
    return x_BCHW * scores_BC.sigmoid().to(x_BCHW.scalar_type()).unsqueeze(2).unsqueeze(3);
  }

  torch::nn::Linear squeeze{nullptr}, excite{nullptr};

 private:
  at::Tensor scores(const at::Tensor& pooled_BC) { return excite(at::relu(squeeze(pooled_BC))); }
};
TORCH_MODULE(ChannelAttention);

}  // namespace spectrogram_gan
