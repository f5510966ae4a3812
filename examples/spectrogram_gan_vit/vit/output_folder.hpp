// SPDX-License-Identifier: MIT
// The folder that `vit_train` writes: of which model it is, what an earlier run left there, and the learning
// curve.
#pragma once

#include <looptorch/base/files/learning_curve.hpp>
#include <looptorch/loop/context.hpp>

#include "config.hpp"
#include "train_options.hpp"

#include <filesystem>
#include <string>
#include <vector>

namespace spectrogram_vit {

/// Throws ConfigError unless the run is of the model that its folder was begun with, and of that of the
/// snapshot it goes on from. Then marks the folder as the run's, and removes what an earlier run left for one
/// that begins anew.
inline void claim_output(const ViTConfig& config, const TrainOptions& options,
                         const std::filesystem::path& snapshot) {
  const auto require_same = [&](const std::filesystem::path& folder) {
    if (std::filesystem::exists(folder / "config.json"))
      require_same_model(load_config(folder / "config.json"), config, folder.string());
  };
  require_same(options.output);
  if (!snapshot.empty()) require_same((snapshot / "../..").lexically_normal());
  std::filesystem::create_directories(options.output);
  save_config(options.output / "config.json", config);
  if (snapshot.empty()) std::filesystem::remove(options.output / "curve.csv");
}

/// Adds an epoch to OUTPUT/curve.csv: the training loss, what Validate measured, and how many blocks were
/// trained.
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
