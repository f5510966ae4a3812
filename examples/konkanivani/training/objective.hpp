// SPDX-License-Identifier: MIT
// The objective that konkanivani_train gives the Trainer: the joint loss of a batch. It declares
// `weight(batch)` so that CaptureGraphs can set the weight before each replay; batches that differ only in
// weight then share one graph.
#pragma once

#include "../clips/batch.hpp"
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
