// SPDX-License-Identifier: MIT
// Keeps generator and discriminator in balance while gan_train trains both: the discriminator skips its
// updates while it is winning, and the noise added to its input decreases over the run.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/loop/context.hpp>

#include "model.hpp"

#include <torch/torch.h>

#include <algorithm>
#include <cstdint>

namespace spectrogram_gan {

[[nodiscard]] inline GanImpl& gan_of(const looptorch::Run& run) { return *run.model().as<GanImpl>(); }

/// For the discriminator's `UpdateOptions::when`: false while it judges more than `accuracy` of the real and
/// generated spectrograms correctly. Reads one number from the device in each step.
struct UnlessWinning {
  double accuracy = 0.9;  ///< share; 1: the discriminator never pauses

  bool operator()(const looptorch::Run& run) const {
    if (accuracy >= 1) return true;
    const auto& gan = gan_of(run);
    return (gan.accepted.to(at::kDouble) + 1 - gan.fooled).item<double>() / 2 <= accuracy;
  }
};

/// A policy that decreases the instance noise from `deviation` to 0 over the run's steps, linearly. If the
/// run's length is unknown, the noise stays constant.
struct AnnealInstanceNoise {
  double deviation = 0;

  static constexpr looptorch::Phase phase = looptorch::Phase::observe;

  /// Throws UsageError for a deviation below 0.
  void on_fit_begin(looptorch::FitContext& fit) const {
    if (!(deviation >= 0))
      throw looptorch::UsageError(
          looptorch::message("AnnealInstanceNoise: a deviation of ", deviation, ", below 0"));
    set(fit.run);
  }
  void on_window_end(looptorch::WindowContext& window) const { set(window.run); }

 private:
  void set(const looptorch::Run& run) const {
    const auto& progress = run.progress();
    const auto total = progress.total_steps.value_or(0);
    const double done = total > 0 ? static_cast<double>(progress.step) / static_cast<double>(total) : 0;
    const torch::NoGradGuard no_grad;
    gan_of(run).instance_noise.fill_(deviation * std::max(1 - done, 0.0));
  }
};

}  // namespace spectrogram_gan
