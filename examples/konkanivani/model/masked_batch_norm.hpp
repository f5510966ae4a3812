// SPDX-License-Identifier: MIT
// Batch normalisation with the mean and variance of valid frames only, so that a batch's padding has no
// effect. Without padding it equals BatchNorm1d, whose names and momentum it has. Never waits for the device.
// Computes in the type of its weight, also under autocast.
//
// Shapes: B batch, C channels, T frames.
#pragma once

#include <torch/torch.h>

namespace konkanivani {

class MaskedBatchNormImpl : public torch::nn::Module {
 public:
  explicit MaskedBatchNormImpl(int64_t channels) {
    weight = register_parameter("weight", at::ones({channels}));
    bias = register_parameter("bias", at::zeros({channels}));
    running_mean = register_buffer("running_mean", at::zeros({channels}));
    running_var = register_buffer("running_var", at::ones({channels}));
    num_batches_tracked = register_buffer("num_batches_tracked", at::zeros({}, at::kLong));
  }

  /// Takes `valid_B1T` as bool, at least one true. The results of padded frames are meaningless.
  [[nodiscard]] at::Tensor forward(const at::Tensor& x_BCT, const at::Tensor& valid_B1T) {
    const auto wide_BCT = x_BCT.to(weight.scalar_type());
    // Contiguous, as the result is in any case: PyTorch's decompositions expect the input's strides in it.
    if (!is_training())
      return at::batch_norm(wide_BCT.contiguous(), weight, bias, running_mean, running_var,
                            /*training=*/false, kMomentum, kEpsilon, /*cudnn_enabled=*/false);
    const auto share_B1T = valid_B1T.to(wide_BCT.scalar_type());
    const auto count = share_B1T.sum();
    const auto mean_C1 = ((wide_BCT * share_B1T).sum(at::IntArrayRef{0, 2}) / count).unsqueeze(1);
    const auto centred_BCT = wide_BCT - mean_C1;
    const auto variance_C = ((centred_BCT * share_B1T).square().sum(at::IntArrayRef{0, 2}) / count);
    track(mean_C1.detach().squeeze(1), variance_C.detach() * (count / (count - 1).clamp_min(1)));
    return centred_BCT * (at::rsqrt(variance_C + kEpsilon) * weight).unsqueeze(1) + bias.unsqueeze(1);
  }

 private:
  static constexpr double kMomentum = 0.1, kEpsilon = 1e-5;

  void track(const at::Tensor& mean_C, const at::Tensor& variance_C) {
    const torch::NoGradGuard no_grad;
    num_batches_tracked.add_(1);
    running_mean.lerp_(mean_C, kMomentum);
    running_var.lerp_(variance_C, kMomentum);
  }

  at::Tensor weight, bias, running_mean, running_var, num_batches_tracked;
};
TORCH_MODULE(MaskedBatchNorm);

}  // namespace konkanivani
