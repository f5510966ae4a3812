// SPDX-License-Identifier: MIT
// Makes synthetic speech sound as if a microphone had recorded it: adds the echoes of a small room and noise,
// and changes the loudness. konkanivani_corpus applies it to each clip, in much less time than the synthesis
// takes. The effects are drawn from a seed, and the same seed gives the same result on every platform.
//
// Shape: T samples.
#pragma once

#include <looptorch/base/error.hpp>

#include "sentences.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace konkanivani {

/// The properties of a recording.
struct Recording {
  bool room = false;
  double snr_db = 0;       ///< signal-to-noise ratio; 0: no noise
  double colour = 0;       ///< colour of the noise: 0 white, towards 1 darker
  double peak = 0.5;       ///< largest magnitude of the samples
  std::uint64_t seed = 0;  ///< seed of echoes and noise
};

/// Draws the properties of a clip's recording: half of the clips are in a room, and three quarters have noise
/// 10 to 30 dB below the voice.
[[nodiscard]] inline Recording draw_recording(Dice& dice) {
  Recording recording;
  recording.room = dice.between(0, 1) == 0;
  if (dice.between(0, 3) != 0) recording.snr_db = static_cast<double>(dice.between(10, 30));
  recording.colour = 0.3 * static_cast<double>(dice.between(0, 3));
  recording.peak = 0.1 * static_cast<double>(dice.between(2, 9));
  recording.seed = dice.roll();
  return recording;
}

/// Adds eight echoes within 80 ms, weaker the later they come.
[[nodiscard]] inline at::Tensor add_echoes(const at::Tensor& samples_T, std::int64_t sample_rate,
                                           Dice& dice) {
  auto mixed_T = samples_T.clone();
  for (int i = 0; i < 8; ++i) {
    const double seconds = 0.004 + 0.076 * dice.share(), gain = 0.5 * std::exp(-40 * seconds);
    const auto delay = static_cast<std::int64_t>(seconds * static_cast<double>(sample_rate));
    if (delay >= samples_T.size(0)) continue;
    mixed_T.slice(0, delay).add_(samples_T.slice(0, 0, samples_T.size(0) - delay),
                                 dice.share() < 0.5 ? gain : -gain);
  }
  return mixed_T;
}

/// Returns noise through a low-pass filter of one pole.
[[nodiscard]] inline at::Tensor coloured_noise(std::int64_t count, double colour, Dice& dice) {
  auto noise_T = at::empty({count}, at::kFloat);
  auto* out = noise_T.mutable_data_ptr<float>();
  double held = 0;
  for (std::int64_t t = 0; t < count; ++t) {
    held = colour * held + (1 - colour) * (2 * dice.share() - 1);
    out[t] = static_cast<float>(held);
  }
  return noise_T;
}

/// Returns `samples + gain * noise`, both float32 `[..., T]`. The gain puts the power of each clip's noise
/// `snr_db` below the power of the clip. Adds no noise if the noise is silent (a power below 1e-30), if the
/// clip is silent, or if the gain would be infinite. Throws UsageError for other types, for noise of another
/// shape than the samples, and for a ratio that is not finite.
[[nodiscard]] inline at::Tensor mix_at_snr(const at::Tensor& samples, const at::Tensor& noise,
                                           double snr_db) {
  const auto is_sound = [](const at::Tensor& sound) {
    return sound.defined() && sound.scalar_type() == at::kFloat && sound.dim() >= 1;
  };
  if (!is_sound(samples) || !is_sound(noise) || samples.sizes() != noise.sizes() || !std::isfinite(snr_db))
    throw looptorch::UsageError(looptorch::message(
        "mix_at_snr: expected float32 samples and noise of one shape [..., T], got ", samples.toString(), " ",
        samples.sizes(), " and ", noise.toString(), " ", noise.sizes(), " at ", snr_db, " dB"));
  const c10::NoGradGuard no_grad;
  const auto norm = [](const at::Tensor& sound) {
    return at::linalg_vector_norm(sound, 2, -1, /*keepdim=*/true, at::kDouble);
  };
  const at::Tensor noise_norm = norm(noise);
  const at::Tensor gain = (norm(samples) / noise_norm).mul_(std::pow(10.0, -snr_db / 20)).to(at::kFloat);
  const double silence = std::sqrt(1e-30 * static_cast<double>(noise.size(-1)));
  return samples + noise * at::where((noise_norm > silence).logical_and_(gain.isfinite()), gain, 0);
}

/// Returns `samples_T` (float32) as if recorded so.
[[nodiscard]] inline at::Tensor record(at::Tensor samples_T, std::int64_t sample_rate,
                                       const Recording& recording) {
  Dice dice(recording.seed);
  if (recording.room) samples_T = add_echoes(samples_T, sample_rate, dice);
  if (recording.snr_db != 0)
    samples_T =
        mix_at_snr(samples_T, coloured_noise(samples_T.size(0), recording.colour, dice), recording.snr_db);
  const double loudest = samples_T.abs().max().item<double>();
  return loudest > 0 ? samples_T * (recording.peak / loudest) : samples_T;
}

}  // namespace konkanivani
