// SPDX-License-Identifier: MIT
// The adversarial losses of generator and discriminator, hinge or binary cross-entropy, and the gradient
// penalty. Each is a mean over the batch, so micro-batches are weighted by their size.
//
// Shapes: B batch.
#pragma once

#include <looptorch/base/error.hpp>

#include <ATen/autocast_mode.h>
#include <torch/torch.h>

#include <string>

namespace spectrogram_gan {

/// `hinge` (Lim and Ye, 2017) ignores clear cases. `bce` is binary cross-entropy on logits; the generator
/// uses its non-saturating form (Goodfellow et al., 2014).
enum class AdversarialLoss { hinge, bce };

/// Returns the loss named "hinge" or "bce". Throws UsageError for another name.
[[nodiscard]] inline AdversarialLoss adversarial_loss(const std::string& name) {
  if (name == "hinge") return AdversarialLoss::hinge;
  if (name == "bce") return AdversarialLoss::bce;
  throw looptorch::UsageError("--loss: \"" + name + "\" is neither hinge nor bce");
}

/// Returns the loss, 0-dim, from logits `[B]` for real and for generated spectrograms.
[[nodiscard]] inline at::Tensor discriminator_loss(AdversarialLoss loss, const at::Tensor& real_B,
                                                   const at::Tensor& fake_B) {
  if (loss == AdversarialLoss::hinge) return at::relu(1 - real_B).mean() + at::relu(1 + fake_B).mean();
  return at::softplus(-real_B).mean() + at::softplus(fake_B).mean();
}

/// Returns the loss, 0-dim, from logits `[B]` for generated spectrograms.
[[nodiscard]] inline at::Tensor generator_loss(AdversarialLoss loss, const at::Tensor& fake_B) {
  return loss == AdversarialLoss::hinge ? -fake_B.mean() : at::softplus(-fake_B).mean();
}

/// Returns the mean over the batch of the squared gradient of `score` at `real`, 0-dim (Mescheder et al.,
/// 2018; their penalty is gamma / 2 times it): how steep the discriminator is at real spectrograms. The
/// result can be differentiated. Costs one forward pass and a backward of higher order, in full precision
/// also under autocast, since 16 bits would lose small gradients.
template <class Score>
[[nodiscard]] at::Tensor gradient_penalty(Score&& score, const at::Tensor& real) {
  const c10::impl::ExcludeDispatchKeyGuard full_precision(c10::autocast_dispatch_keyset);
  const auto input = real.detach().requires_grad_();
  const auto gradient =
      torch::autograd::grad({score(input).sum()}, {input}, /*grad_outputs=*/{}, /*retain_graph=*/true,
                            /*create_graph=*/true)
          .front();
  return gradient.square().flatten(1).sum(1).mean();
}

}  // namespace spectrogram_gan
