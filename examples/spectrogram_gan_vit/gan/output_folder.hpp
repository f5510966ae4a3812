// SPDX-License-Identifier: MIT
// Writes the models of `gan_train` to its output folder: the averaged weights of the last step, and those of
// the best step.
#pragma once

#include <looptorch/policies/metrics/best_few.hpp>

#include "../clips/data.hpp"
#include "../clips/labels.hpp"
#include "../clips/loudness.hpp"
#include "../clips/song_clips.hpp"
#include "model.hpp"
#include "train_options.hpp"

#include <array>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <optional>

namespace spectrogram_gan {

/// The step whose averaged weights generated the clips nearest to the validation clips, by Frechet distance.
struct Best {
  std::int64_t step;
  double frechet;
};

[[nodiscard]] inline std::optional<Best> best_of(const looptorch::BestFew& kept) {
  const auto value = kept.value();
  return value ? std::optional(Best{kept.step(), *value}) : std::nullopt;
}

/// Removes an earlier run's files from the folder, for a run that begins anew.
inline void begin_anew(const TrainOptions& options) {
  for (const auto* file : {"curve.csv", "judge.safetensors", "best/config.json"})
    std::filesystem::remove(options.output / file);
}

/// Writes the last averaged weights, those of `gan`, into OUTPUT, and the weights of `best` into OUTPUT/best.
/// The best step's snapshot may be in this run's folder, or in that of `snapshot`, which the run resumed.
inline void save_models(Gan& gan, const Clips& clips, const at::Tensor& labels_N2,
                        const std::optional<Best>& best, const TrainOptions& options,
                        const std::filesystem::path& snapshot) {
  const auto scale = mean_scale(clips, 64, options.training.loader_options().on_error);
  const auto save = [&](const std::filesystem::path& folder) {
    std::filesystem::create_directories(folder);
    std::filesystem::remove(folder / "config.json");  // save_model writes it after all else
    save_loudness(folder / "loudness.json", scale);
    save_labels(folder, labels_N2);
    save_model(gan, folder);
  };
  save(options.output);
  if (!best) return;
  const std::array folders{options.snapshots(),
                           snapshot.empty() ? snapshot : (snapshot / "..").lexically_normal()};
  if (load_averages(gan, best->step, folders)) return save(options.output / "best");
  std::cerr << "the snapshot of the best step, " << best->step
            << ", is gone: " << (options.output / "best").string() << " is not written" << std::endl;
}

}  // namespace spectrogram_gan
