// SPDX-License-Identifier: MIT
// Writes curve.csv, the learning curve of `vit_train`. A new run first removes the curve.csv of an earlier
// one.
#pragma once

#include <looptorch/loop/context.hpp>
#include <looptorch/report/learning_curve.hpp>

#include "train_options.hpp"

#include <filesystem>
#include <string>
#include <vector>

namespace spectrogram_vit {

/// Removes an earlier run's files from the folder, for a run that begins anew.
inline void begin_anew(const TrainOptions& options) { std::filesystem::remove(options.output / "curve.csv"); }

/// Adds an epoch to OUTPUT/curve.csv: the training loss, Validate's measurement, and the number of trained
/// blocks.
inline void add_to_curve(const std::filesystem::path& output, const looptorch::EpochContext& epoch) {
  const std::vector<std::string> measured{"loss",        "ccc_valence", "ccc_arousal", "mse_valence",
                                          "mse_arousal", "r2_valence",  "r2_arousal"};
  std::vector<std::string> columns{"epoch", "training_loss"};
  std::vector<double> values{static_cast<double>(epoch.run.progress().epoch),
                             epoch.run.updates()[0].loss.totals().mean()};
  for (const auto& name : measured) {
    columns.push_back(name);
    values.push_back(epoch.run.metrics().find("validation." + name).value());
  }
  columns.emplace_back("trained_blocks");
  values.push_back(epoch.run.metrics().find("trained_blocks").value());
  looptorch::LearningCurve(output / "curve.csv", columns).add(epoch.run.progress().step, values);
}

}  // namespace spectrogram_vit
