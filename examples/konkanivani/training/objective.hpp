// SPDX-License-Identifier: MIT
// KonkaniVani's objective for a Trainer. A CUDA graph keeps host numbers from its capture. `weight(batch)`
// gives the loss's weight before each replay, so batches that differ in weight alone share a graph.
#pragma once

#include "../clips/data.hpp"
#include "../model/loss.hpp"
#include "../model/model.hpp"

namespace konkanivani {

struct JointLoss {
  LossOptions options = {};

  [[nodiscard]] looptorch::Loss operator()(KonkaniVani& model, const Batch& batch) const {
    return joint_loss(model, model->encode(batch.mel_BMF, batch.lengths_B), batch.targets, options);
  }
  /// Returns the weight of the batch's loss.
  [[nodiscard]] static double weight(const Batch& batch) { return batch.targets.weight(); }
};

}  // namespace konkanivani
