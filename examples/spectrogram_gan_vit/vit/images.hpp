// SPDX-License-Identifier: MIT
// Converts spectrograms to a ViT's images: normalises each mel bin, resizes bilinearly, and repeats the
// picture for each colour. The model does this in its forward, so batches hold spectrograms, and no images
// are copied to the device.
//
// Shapes: B batch, M mel bins, F frames, H rows, W columns.
#pragma once

#include <looptorch/base/error.hpp>

#include "config.hpp"

#include <torch/torch.h>

#include <cstdint>

namespace spectrogram_vit {

/// Returns `[B, 1, M, F]` resized to `[B, channels, H, W]` as
/// torch.nn.functional.interpolate(mode="bilinear", align_corners=False) does. The channels share memory.
/// Throws UsageError for another shape.
[[nodiscard]] inline at::Tensor images_of(const at::Tensor& spectrograms_B1MF, Extent image,
                                          std::int64_t channels) {
  if (spectrograms_B1MF.dim() != 4 || spectrograms_B1MF.size(1) != 1)
    throw looptorch::UsageError(
        looptorch::message("images_of: expected spectrograms [B, 1, M, F], got ", spectrograms_B1MF.sizes()));
  return at::upsample_bilinear2d(spectrograms_B1MF, {image.height, image.width}, /*align_corners=*/false)
      .expand({-1, channels, -1, -1});
}

/// Subtracts each mel bin's mean and divides by its deviation, both taken over the training clips. Both are
/// buffers, so that weights, snapshots and devices include them. Has no effect until they are set.
class NormalisationImpl : public torch::nn::Module {
 public:
  explicit NormalisationImpl(std::int64_t n_mels) {
    mean = register_buffer("mean", at::zeros({n_mels}));
    deviation = register_buffer("deviation", at::ones({n_mels}));
  }

  /// Normalises `[B, 1, M, F]`. Throws UsageError for another M.
  [[nodiscard]] at::Tensor forward(const at::Tensor& spectrograms_B1MF) const {
    if (spectrograms_B1MF.dim() != 4 || spectrograms_B1MF.size(2) != mean.size(0))
      throw looptorch::UsageError(looptorch::message("Normalisation: expected spectrograms [B, 1, ",
                                                     mean.size(0), ", F], got ", spectrograms_B1MF.sizes()));
    return (spectrograms_B1MF - mean.unsqueeze(1)) / deviation.unsqueeze(1);
  }

  at::Tensor mean, deviation;
};
TORCH_MODULE(Normalisation);

/// Accumulates the mean and deviation of each mel bin, in double, spectrogram by spectrogram. Sums
/// differences from the bin's first value: sums of squares would lose a small deviation.
class MelStatistics {
 public:
  /// Adds `[..., M, F]`, on the CPU.
  void add(const at::Tensor& spectrograms_MF) {
    auto values_MF = spectrograms_MF.to(at::kDouble).transpose(0, -2).flatten(1);
    if (values_MF.size(1) == 0) return;
    if (!first_M_.defined()) first_M_ = values_MF.select(1, 0).clone();
    values_MF = values_MF - first_M_.unsqueeze(1);
    const auto sums_2M = at::stack({values_MF.sum(1), values_MF.square().sum(1)});
    sums_2M_ = sums_2M_.defined() ? sums_2M_ + sums_2M : sums_2M;
    count_ += values_MF.size(1);
  }

  /// Writes mean and deviation to `normalisation`. A bin that never changes keeps a deviation of 1. Throws
  /// UsageError if nothing was added.
  void write(const Normalisation& normalisation) const {
    if (count_ == 0) throw looptorch::UsageError("MelStatistics: no spectrogram was added");
    const torch::NoGradGuard no_grad;
    const auto above_first_M = sums_2M_[0] / count_;
    const auto deviation_M = (sums_2M_[1] / count_ - above_first_M.square()).clamp_min(0).sqrt();
    normalisation->mean.copy_(first_M_ + above_first_M);
    normalisation->deviation.copy_(at::where(deviation_M > kNone, deviation_M, at::ones_like(deviation_M)));
  }

 private:
  static constexpr double kNone = 1e-6;

  at::Tensor first_M_, sums_2M_;
  std::int64_t count_ = 0;
};

}  // namespace spectrogram_vit
