// SPDX-License-Identifier: MIT
// Augments samples for training: other speeds, and noise at a given signal-to-noise ratio. The random numbers
// depend only on the seed of the call: the same on every platform. (Masks of spectrograms: spec_augment.hpp.)
// Shapes: B clips, T samples, N samples of noise.
#pragma once

#include <looptorch/audio/resample.hpp>
#include <looptorch/base/error.hpp>
#include <looptorch/base/random.hpp>

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/where.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace konkanivani {

/// Plays `samples` `[..., T]` faster or slower at the same rate, as a tape does: length, pitch and formants
/// change by one of `factors`, drawn with equal chances (Ko et al. 2015).
class SpeedPerturbation {
 public:
  /// Factors are rounded to hundredths. Throws UsageError for none, and for one outside [0.1, 10].
  explicit SpeedPerturbation(const std::vector<double>& factors = {0.9, 1.0, 1.1});

  /// Returns float32 `[..., ceil(T / factor)]`. The whole tensor gets one factor; a factor of 1 returns the
  /// samples themselves. Throws UsageError for other types.
  at::Tensor operator()(const at::Tensor& samples, std::uint64_t seed) const;

 private:
  std::vector<looptorch::audio::Resampler> resamplers_;
};

/// Returns `samples + gain * noise`, both float32 `[..., T]`. The gain puts the power of each clip's noise
/// `snr_db` below the power of the clip. Nothing changes if the noise is silent (a power below 1e-30), the
/// clip is silent, or the gain would be infinite. Throws UsageError for other types, other shapes than the
/// samples', and a ratio that is not finite.
inline at::Tensor mix_at_snr(const at::Tensor& samples, const at::Tensor& noise, double snr_db);

/// Adds a random stretch of a random noise to a clip, at a random signal-to-noise ratio.
class NoiseMixer {
 public:
  /// Takes `noises`, float32 `[N]` each, at the rate of the clips and on their device. The ratio is uniform
  /// in [min_snr_db, max_snr_db]. Throws UsageError for no noise, an empty one, another type or shape, and an
  /// invalid range.
  NoiseMixer(std::vector<at::Tensor> noises, double min_snr_db, double max_snr_db);

  /// Returns a noisy copy of the clip `[T]`; shorter noise is repeated. Throws UsageError for other types and
  /// shapes.
  at::Tensor operator()(const at::Tensor& samples_T, std::uint64_t seed) const;

 private:
  static at::Tensor stretch(const at::Tensor& noise_N, std::int64_t first, std::int64_t count);

  std::vector<at::Tensor> noises_;
  double min_snr_db_, max_snr_db_;
};

namespace detail {

inline bool is_sound(const at::Tensor& samples) {
  return samples.defined() && samples.scalar_type() == at::kFloat && samples.dim() >= 1;
}

}  // namespace detail

inline SpeedPerturbation::SpeedPerturbation(const std::vector<double>& factors) {
  if (factors.empty()) throw looptorch::UsageError("SpeedPerturbation: no factor to draw from");
  for (const double factor : factors) {
    if (!(factor >= 0.1 && factor <= 10))
      throw looptorch::UsageError(
          looptorch::message("SpeedPerturbation: factor ", factor, " is not between 0.1 and 10"));
    resamplers_.emplace_back(std::llround(100 * factor), 100);
  }
}

inline at::Tensor SpeedPerturbation::operator()(const at::Tensor& samples, std::uint64_t seed) const {
  looptorch::SplitMix64 random(looptorch::derive_seed(seed, 0));
  return resamplers_[random.below(resamplers_.size())](samples);
}

inline at::Tensor mix_at_snr(const at::Tensor& samples, const at::Tensor& noise, double snr_db) {
  if (!detail::is_sound(samples) || !detail::is_sound(noise) || samples.sizes() != noise.sizes() ||
      !std::isfinite(snr_db))
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

inline NoiseMixer::NoiseMixer(std::vector<at::Tensor> noises, double min_snr_db, double max_snr_db)
    : noises_(std::move(noises)), min_snr_db_(min_snr_db), max_snr_db_(max_snr_db) {
  if (noises_.empty()) throw looptorch::UsageError("NoiseMixer: no noise to draw from");
  for (const at::Tensor& noise : noises_) {
    if (!detail::is_sound(noise) || noise.dim() != 1 || noise.numel() == 0)
      throw looptorch::UsageError(
          looptorch::message("NoiseMixer: expected float32 noise [N] that is not empty, got ",
                             noise.toString(), " ", noise.sizes()));
  }
  if (!std::isfinite(min_snr_db) || !std::isfinite(max_snr_db) || min_snr_db > max_snr_db)
    throw looptorch::UsageError(
        looptorch::message("NoiseMixer: cannot draw from ", min_snr_db, " to ", max_snr_db, " dB"));
}

inline at::Tensor NoiseMixer::operator()(const at::Tensor& samples_T, std::uint64_t seed) const {
  if (!detail::is_sound(samples_T) || samples_T.dim() != 1)
    throw looptorch::UsageError(looptorch::message("NoiseMixer: expected float32 samples [T], got ",
                                                   samples_T.toString(), " ", samples_T.sizes()));
  if (samples_T.numel() == 0) return samples_T.clone();
  looptorch::SplitMix64 random(looptorch::derive_seed(seed, 0));
  const at::Tensor& noise_N = noises_[random.below(noises_.size())];
  const auto first = static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(noise_N.numel())));
  const double share = static_cast<double>(random.next() >> 11) * 0x1p-53;  // in [0, 1)
  return mix_at_snr(samples_T, stretch(noise_N, first, samples_T.numel()),
                    min_snr_db_ + share * (max_snr_db_ - min_snr_db_));
}

/// Returns `count` samples from `first` on, continuing from the first sample after the last.
inline at::Tensor NoiseMixer::stretch(const at::Tensor& noise_N, std::int64_t first, std::int64_t count) {
  const at::Tensor stretch_T = at::empty({count}, noise_N.options());
  for (std::int64_t done = 0; done < count; first = 0) {
    const std::int64_t some = std::min(count - done, noise_N.numel() - first);
    stretch_T.narrow(0, done, some).copy_(noise_N.narrow(0, first, some));
    done += some;
  }
  return stretch_T;
}

}  // namespace konkanivani
