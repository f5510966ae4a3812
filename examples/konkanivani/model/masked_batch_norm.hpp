// SPDX-License-Identifier: MIT
// Batch normalisation with the mean and variance of valid frames only, so that a batch's padding has no
// effect. Without padding it equals BatchNorm1d, whose names and momentum it uses. Never waits for the
// device. Computes in the type of its weight, also under autocast.
//
// Shapes: B batch, C channels, T frames.
#pragma once

#include <looptorch/base/error.hpp>

#include <torch/torch.h>

namespace konkanivani {

namespace detail {

/// The valid frames' mean and variance by channel, and the factor 1 / sqrt(variance + epsilon).
struct FrameStatistics {
  FrameStatistics(const at::Tensor& x_BCT, const at::Tensor& valid_B1T, double epsilon)
      : mask_B1T(valid_B1T.to(x_BCT.scalar_type())), count(mask_B1T.sum()) {
    mean_C1 = ((x_BCT * mask_B1T).sum(at::IntArrayRef{0, 2}) / count).unsqueeze(1);
    centred_BCT = x_BCT - mean_C1;
    variance_C = (centred_BCT * mask_B1T).square_().sum(at::IntArrayRef{0, 2}) / count;
    inverse_C = at::rsqrt(variance_C + epsilon);
  }

  at::Tensor mask_B1T, count, mean_C1, centred_BCT, variance_C, inverse_C;
};

/// Normalises, scales and shifts frames in one autograd node in place of sixteen: in a narrow net the host
/// spends most of its time on nodes. The gradient of x includes the terms through mean and variance.
struct NormaliseFrames : torch::autograd::Function<NormaliseFrames> {
  using Context = torch::autograd::AutogradContext;
  using Tensors = torch::autograd::variable_list;

  static at::Tensor forward(Context* context, const at::Tensor&, const at::Tensor& weight_C,
                            const at::Tensor& bias_C, const FrameStatistics& of) {
    context->save_for_backward({of.centred_BCT, of.mask_B1T, of.count, of.inverse_C, weight_C});
    return (of.centred_BCT * (of.inverse_C * weight_C).unsqueeze(1)).add_(bias_C.unsqueeze(1));
  }

  static Tensors backward(Context* context, const Tensors& gradients) {
    if (at::GradMode::is_enabled())
      throw looptorch::UsageError(
          "MaskedBatchNorm can be differentiated once: call backward() without create_graph");
    const auto saved = context->get_saved_variables();
    const at::Tensor &centred_BCT = saved[0], &mask_B1T = saved[1], &count = saved[2], &inverse_C = saved[3];
    const at::Tensor &gradient_BCT = gradients[0], scale_C = inverse_C * saved[4];
    const auto grad_weight_C = (gradient_BCT * centred_BCT).sum(at::IntArrayRef{0, 2}).mul_(inverse_C);
    const auto grad_bias_C = gradient_BCT.sum(at::IntArrayRef{0, 2});
    at::Tensor grad_x_BCT;
    if (context->needs_input_grad(0)) {
      const auto by_mean_C1 = (grad_bias_C / count).unsqueeze(1);
      const auto by_variance_C1 = (grad_weight_C * inverse_C / count).unsqueeze(1);
      grad_x_BCT = (gradient_BCT - mask_B1T * (centred_BCT * by_variance_C1).add_(by_mean_C1))
                       .mul_(scale_C.unsqueeze(1));
    }
    return {grad_x_BCT, grad_weight_C, grad_bias_C, {}};
  }
};

}  // namespace detail

/// BatchNorm1d over valid frames. Running statistics change in training only.
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
    // Contiguous, as the result is anyway: PyTorch's decompositions expect an input with its strides.
    if (!is_training())
      return at::batch_norm(wide_BCT.contiguous(), weight, bias, running_mean, running_var,
                            /*training=*/false, kMomentum, kEpsilon, /*cudnn_enabled=*/false);
    const detail::FrameStatistics of(wide_BCT.detach(), valid_B1T, kEpsilon);
    track(of);
    return detail::NormaliseFrames::apply(wide_BCT, weight, bias, of);
  }

 private:
  static constexpr double kMomentum = 0.1, kEpsilon = 1e-5;

  void track(const detail::FrameStatistics& of) {
    const torch::NoGradGuard no_grad;
    num_batches_tracked.add_(1);
    running_mean.lerp_(of.mean_C1.squeeze(1), kMomentum);
    running_var.lerp_(of.variance_C * (of.count / (of.count - 1).clamp_min(1)), kMomentum);
  }

  at::Tensor weight, bias, running_mean, running_var, num_batches_tracked;
};
TORCH_MODULE(MaskedBatchNorm);

}  // namespace konkanivani
