// SPDX-License-Identifier: MIT
// The objectives of generator and discriminator, which the Trainer calls as `objective(gan, batch)`. A batch
// has `spectrograms_B1MF` and `conditions_B2`. While one network learns, the parameters of the other receive
// no gradients.
#pragma once

#include <looptorch/objective/loss.hpp>

#include "losses.hpp"
#include "model.hpp"

#include <torch/torch.h>

#include <cstdint>

namespace spectrogram_gan {

/// Returns an input of the discriminator, real or generated, with noise added if `is_noisy` (Sønderby et al.,
/// 2017).
[[nodiscard]] inline at::Tensor through_noise(const Gan& gan, bool is_noisy, const at::Tensor& spectrograms) {
  return is_noisy ? spectrograms + gan->instance_noise * at::randn_like(spectrograms) : spectrograms;
}

/// Returns for each clip the emotion of another clip of the batch, each other one equally likely. Real music
/// has these emotions, which may not be true of uniform draws. The batch must have at least 2 clips. Draws
/// one number from the generator of the batch's device, which is part of snapshots; never waits for a device.
[[nodiscard]] inline at::Tensor conditions_of_others(const at::Tensor& conditions_B2) {
  const auto rows = conditions_B2.size(0);
  const auto integers = conditions_B2.options().dtype(at::kLong);
  const auto shift_1 = 1 + at::randint(rows - 1, {1}, integers);
  const auto row_B = at::ones({rows}, integers).cumsum(0) - 1;
  const auto other_B1 = at::remainder(row_B - shift_1, rows).unsqueeze(1);
  return at::where(other_B1.eq(row_B).unsqueeze(2), conditions_B2, 0.0).sum(1);
}

/// Options of both objectives. Programs set them by designated initialisers, which must follow the order of
/// the fields.
struct GameOptions {
  AdversarialLoss loss = AdversarialLoss::hinge;
  double r1 = 0;                ///< gamma of the gradient penalty; 0: none
  bool instance_noise = false;  ///< adds the model's `instance_noise` to the discriminator's input
  /// Share of the discriminator's loss on rejected pairs that comes from real spectrograms with another
  /// clip's emotion; generated ones have the rest (Reed et al., 2016). It makes the emotion matter, for one
  /// more forward pass; 0: none. A batch of one clip has no other emotion.
  double mismatched = 0;
  /// The weight of the mean squared error of the emotion that the discriminator predicts (Odena et al.,
  /// 2017); 0: none. The discriminator learns the emotion from real spectrograms, and the generator learns to
  /// express it.
  double auxiliary = 0;
};

/// Distinguishes real from generated spectrograms, drawn anew in each call. The generator does not learn.
struct DiscriminatorObjective {
  GameOptions options;

  template <class Batch>
  looptorch::Loss operator()(Gan& gan, const Batch& batch) const {
    const auto judge = [&](const at::Tensor& seen) { return gan->discriminator(seen, batch.conditions_B2); };
    const auto fake = through_noise(gan, options.instance_noise, generated(gan, batch.conditions_B2));
    const auto real = through_noise(gan, options.instance_noise, batch.spectrograms_B1MF);
    const auto [real_B, predicted_B2] = gan->discriminator->judge(real, batch.conditions_B2);
    const auto fake_B = judge(fake);
    gan->observe(gan->accepted, real_B);
    auto value = discriminator_loss(options.loss, real_B, fake_B);
    if (options.mismatched > 0 && batch.conditions_B2.size(0) > 1) {
      const auto other_B2 = conditions_of_others(batch.conditions_B2);
      const auto wrong = discriminator_loss(options.loss, real_B, gan->discriminator(real, other_B2));
      value = at::lerp(value, wrong, options.mismatched);
    }
    const auto emotion_error = at::mse_loss(predicted_B2, batch.conditions_B2);
    if (options.auxiliary > 0) value = value + options.auxiliary * emotion_error;
    if (options.r1 > 0) value = value + options.r1 / 2 * gradient_penalty(judge, real);
    return {.value = value,
            .weight = real.size(0),
            .metrics = {{"real", real_B.detach().mean()},
                        {"fake", fake_B.detach().mean()},
                        {"emotion_error_real", emotion_error.detach()}}};
  }

 private:
  static at::Tensor generated(Gan& gan, const at::Tensor& conditions_B2) {
    const torch::NoGradGuard no_grad;
    return gan->generate(conditions_B2);
  }
};

/// Makes generated spectrograms look real, given the batch's emotions.
struct GeneratorObjective {
  GameOptions options;

  template <class Batch>
  looptorch::Loss operator()(Gan& gan, const Batch& batch) const {
    const auto fake = through_noise(gan, options.instance_noise, gan->generate(batch.conditions_B2));
    const auto [fake_B, predicted_B2] = gan->discriminator->judge(fake, batch.conditions_B2);
    gan->observe(gan->fooled, fake_B);
    const auto emotion_error = at::mse_loss(predicted_B2, batch.conditions_B2);
    auto value = generator_loss(options.loss, fake_B);
    if (options.auxiliary > 0) value = value + options.auxiliary * emotion_error;
    return {.value = value,
            .weight = fake.size(0),
            .metrics = {{"emotion_error_generated", emotion_error.detach()}}};
  }
};

}  // namespace spectrogram_gan
