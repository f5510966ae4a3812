// SPDX-License-Identifier: MIT
// Defines HeldMemory: the bytes that a run holds between its steps as weights, gradients, moments, averages,
// and copies for policies and snapshots.
#pragma once

#include <cstdint>

namespace looptorch {

/// The bytes of a run's tensors on the model's device.
struct HeldMemory {
  std::int64_t weights = 0;  ///< Parameters and buffers.
  /// All gradients of one window, whether or not they exist now; if they are applied in backward, the sums
  /// that replace them.
  std::int64_t gradients = 0;
  std::int64_t optimizer = 0;  ///< Moments of the optimizers.
  std::int64_t averages = 0;   ///< Averages of weights (AverageWeights).
  std::int64_t copies = 0;     ///< Other copies that policies will keep, as RestoreBest does.
  std::int64_t snapshot = 0;   ///< Host memory besides tensors: a snapshot's copy of the run.
  std::int64_t uncounted = 0;  ///< On a CPU: the part allocated before HostMemory began to count.
};

}  // namespace looptorch
