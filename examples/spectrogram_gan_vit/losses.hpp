// SPDX-License-Identifier: MIT
// What the two players want. Of each loss the mean over the batch, so that micro-batches weigh by their size.
//
// Shapes: B batch.
#pragma once

#include <looptorch/base/error.hpp>

#include <ATen/autocast_mode.h>
#include <torch/torch.h>

#include <string>

namespace spectrogram_gan {

/// `hinge`: Lim and Ye (2017), which lets go of what is clear. `bce`: binary cross-entropy on logits, the
/// generator's in its non-saturating form (Goodfellow et al., 2014).
enum class AdversarialLoss { hinge, bce };

/// "hinge" or "bce"; throws UsageError for another name.
[[nodiscard]] inline AdversarialLoss adversarial_loss(const std::string& name) {
  if (name == "hinge") return AdversarialLoss::hinge;
  if (name == "bce") return AdversarialLoss::bce;
  throw looptorch::UsageError("--loss: \"" + name + "\" is neither hinge nor bce");
}

/// 0-dim, of logits `[B]` for real and for generated spectrograms.
[[nodiscard]] inline at::Tensor discriminator_loss(AdversarialLoss loss, const at::Tensor& real_B,
                                                   const at::Tensor& fake_B) {
  if (loss == AdversarialLoss::hinge) return at::relu(1 - real_B).mean() + at::relu(1 + fake_B).mean();
  return at::softplus(-real_B).mean() + at::softplus(fake_B).mean();
}

/// 0-dim, of logits `[B]` for generated spectrograms.
[[nodiscard]] inline at::Tensor generator_loss(AdversarialLoss loss, const at::Tensor& fake_B) {
  return loss == AdversarialLoss::hinge ? -fake_B.mean() : at::softplus(-fake_B).mean();
}

/// The mean over the batch of the squared gradient of what `score` says of `real`, 0-dim (Mescheder et al.,
/// 2018; their penalty is gamma / 2 times it): how steep the discriminator is at real spectrograms. Can be
/// differentiated. One forward pass and a backward of higher order, in full precision under autocast too,
/// where 16 bits would lose small gradients.
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
