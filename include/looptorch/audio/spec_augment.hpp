// SPDX-License-Identifier: MIT
// Hides some frames and some mel bins of a spectrogram, so that a model does not rely on any of them:
// SpecAugment (Park et al. 2019) without time warping. Costs a copy of the spectrogram.
//
// Shapes: B clips, M mel bins, F frames.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/random.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cstdint>
#include <optional>

namespace looptorch::audio {

/// Options of `SpecAugment`. The order of the fields is API.
struct SpecAugmentOptions {
  std::int64_t time_masks = 1;
  std::int64_t max_frames = 70;  ///< the widest time mask
  std::int64_t mel_masks = 1;
  std::int64_t max_bins = 27;    ///< the widest mel mask
  double max_time_share = 1;     ///< largest share of a clip's frames that one time mask hides
  std::optional<double> fill{};  ///< value of masked cells; unset: the clip's mean
};

/// Hides runs of frames and of mel bins. Each run's width is uniform in 0, 1, ..., its maximum; its position
/// is uniform among those where it fits. Meant for log-mel features, whose mean carries no information, and
/// for training only.
///
/// The masks depend only on the seed and the clip's index in its batch: the same on every platform and
/// device. Calling is const and safe from several threads.
class SpecAugment {
 public:
  /// Throws UsageError for negative numbers and for a share outside [0, 1].
  explicit SpecAugment(SpecAugmentOptions options = {});

  const SpecAugmentOptions& options() const { return options_; }

  /// Returns a masked copy of `[M, F]` or `[B, M, F]`, of any floating-point type of 16 bits or more. Derive
  /// the seed from the run's seed, the epoch and the sample's index, so that masks differ each time but are
  /// the same in a resumed run. Throws UsageError for other types and shapes.
  at::Tensor operator()(const at::Tensor& mel, std::uint64_t seed) const;

 private:
  void mask(const at::Tensor& mel_MF, std::uint64_t seed) const;
  static void hide(const at::Tensor& mel_MF, std::int64_t dim, std::int64_t widest, const at::Tensor& fill,
                   SplitMix64& random);

  SpecAugmentOptions options_;
};

inline SpecAugment::SpecAugment(SpecAugmentOptions options) : options_(options) {
  if (std::min({options.time_masks, options.max_frames, options.mel_masks, options.max_bins}) < 0)
    throw UsageError(looptorch::message("SpecAugment: ", options.time_masks, " masks of ", options.max_frames,
                                        " frames and ", options.mel_masks, " of ", options.max_bins,
                                        " mel bins; none may be negative"));
  if (!(options.max_time_share >= 0 && options.max_time_share <= 1))
    throw UsageError(looptorch::message("SpecAugment: a mask cannot hide a share of ", options.max_time_share,
                                        " of a clip's frames"));
}

inline at::Tensor SpecAugment::operator()(const at::Tensor& mel, std::uint64_t seed) const {
  if (!mel.defined() || !at::isFloatingType(mel.scalar_type()) || mel.element_size() < 2 || mel.dim() < 2 ||
      mel.dim() > 3)
    throw UsageError(looptorch::message("SpecAugment: expected a floating-point [M, F] or [B, M, F], got ",
                                        mel.toString(), " ", mel.sizes()));
  const c10::NoGradGuard no_grad;
  const at::Tensor masked = mel.clone();
  const at::Tensor masked_BMF = masked.dim() == 2 ? masked.unsqueeze(0) : masked;
  for (std::int64_t clip = 0; clip < masked_BMF.size(0); ++clip)
    mask(masked_BMF[clip], looptorch::detail::mix64(seed) + static_cast<std::uint64_t>(clip));
  return masked;
}

inline void SpecAugment::mask(const at::Tensor& mel_MF, std::uint64_t seed) const {
  if (mel_MF.numel() == 0) return;
  SplitMix64 random(seed);
  const at::Tensor fill = options_.fill ? at::full({}, *options_.fill, mel_MF.options()) : mel_MF.mean();
  const auto share = static_cast<std::int64_t>(options_.max_time_share * static_cast<double>(mel_MF.size(1)));
  for (std::int64_t i = 0; i < options_.time_masks; ++i)
    hide(mel_MF, 1, std::min(options_.max_frames, share), fill, random);
  for (std::int64_t i = 0; i < options_.mel_masks; ++i) hide(mel_MF, 0, options_.max_bins, fill, random);
}

inline void SpecAugment::hide(const at::Tensor& mel_MF, std::int64_t dim, std::int64_t widest,
                              const at::Tensor& fill, SplitMix64& random) {
  const auto below = [&](std::int64_t bound) {
    return static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(bound)));
  };
  const std::int64_t size = mel_MF.size(dim), width = below(std::min(widest, size) + 1);
  const std::int64_t first = below(size - width + 1);
  mel_MF.narrow(dim, first, width).fill_(fill);
}

}  // namespace looptorch::audio
