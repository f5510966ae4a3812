// SPDX-License-Identifier: MIT
// A linear probe: predicts emotions only from a clip's mean energy in each mel bin. If a ViT scores better on
// the same clips, it uses more than these means.
//
// Shapes: N clips, M mel bins.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/data/loader/loader_options.hpp>
#include <looptorch/data/loader/pinned_prefetch_loader.hpp>

#include "../clips/skipped_items.hpp"
#include "images.hpp"
#include "scores.hpp"

#include <torch/torch.h>

#include <vector>

namespace spectrogram_vit {

/// The mean of each mel bin over a clip, and the clip's emotion.
struct MeanEnergies {
  at::Tensor energies_NM, conditions_N2;
};

/// Reads all clips of a set, and adds them to `statistics` if given. Lists unreadable clips in `skipped`, or
/// throws the first error, as `loading` says. Throws UsageError if none can be read.
template <class Clips>
[[nodiscard]] MeanEnergies mean_energies(const Clips& clips, looptorch::LoaderOptions loading,
                                         spectrogram_gan::SkippedItems& skipped,
                                         MelStatistics* statistics = nullptr) {
  loading.starving = 1;  // never reported as starving: nothing but reading happens
  std::vector<at::Tensor> energies, conditions;
  looptorch::PinnedPrefetchLoader loader(clips, loading);
  for (const auto& batch : loader) {
    if (statistics) statistics->add(batch.spectrograms_B1MF);
    energies.push_back(batch.spectrograms_B1MF.mean({1, 3}));
    conditions.push_back(batch.conditions_B2.clone());
  }
  skipped.add(loader.skipped());
  if (energies.empty()) throw looptorch::UsageError("no clip of a set can be read");
  return {at::cat(energies), at::cat(conditions)};
}

/// Ridge regression from mean mel energies to emotions, in closed form and in double.
class LinearProbe {
 public:
  /// Fits standardised energies. The penalty is `ridge` times the squared weights; the constant has none.
  explicit LinearProbe(const MeanEnergies& train, double ridge = 1) {
    const auto x_NM = train.energies_NM.to(at::kDouble), y_N2 = train.conditions_N2.to(at::kDouble);
    mean_M_ = x_NM.mean(0);
    deviation_M_ = x_NM.std(0, /*unbiased=*/false).clamp_min(1e-6);
    constant_2_ = y_N2.mean(0);
    const auto z_NM = standardised(train.energies_NM);
    const auto penalty_MM = ridge * at::eye(z_NM.size(1), at::kDouble);
    weights_M2_ = at::linalg_solve(z_NM.t().mm(z_NM) + penalty_MM, z_NM.t().mm(y_N2 - constant_2_));
  }

  /// Returns valence and arousal `[N, 2]` of clips by their mean energies `[N, M]`.
  [[nodiscard]] at::Tensor predict(const at::Tensor& energies_NM) const {
    return standardised(energies_NM).mm(weights_M2_) + constant_2_;
  }

  [[nodiscard]] Scores score(const MeanEnergies& clips) const {
    EmotionMeasure measure;
    measure.add(predict(clips.energies_NM), clips.conditions_N2);
    return measure.result();
  }

 private:
  [[nodiscard]] at::Tensor standardised(const at::Tensor& energies_NM) const {
    return (energies_NM.to(at::kDouble) - mean_M_) / deviation_M_;
  }

  at::Tensor mean_M_, deviation_M_, constant_2_, weights_M2_;
};

}  // namespace spectrogram_vit
