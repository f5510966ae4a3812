// SPDX-License-Identifier: MIT
// Loads the data of vit_train: recorded clips in three splits, and generated clips for training only. With
// --spec-augment training clips are masked, anew in each epoch.
//
// Shapes: M mel bins, F frames.
#pragma once

#include <looptorch/audio/spec_augment.hpp>
#include <looptorch/base/error.hpp>
#include <looptorch/data/datasets/dataset.hpp>

#include "../clips/generated.hpp"
#include "../clips/leakage.hpp"
#include "../clips/song_clips.hpp"
#include "train_options.hpp"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <utility>

namespace spectrogram_vit {

using spectrogram_gan::Clip;
using spectrogram_gan::Clips;
using spectrogram_gan::GeneratedClips;
using spectrogram_gan::SkippedItems;

/// Training clips: a dataset's recorded clips, then generated ones. Masks, if there are any, are drawn anew
/// in each epoch. Keeps references to both datasets. Masked cells get `mean_M`, the mean of their mel bin
/// over the training clips: the clip's own mean would be loud in quiet bins and quiet in loud ones.
template <class Recorded>
class TrainingClips {
 public:
  TrainingClips(const Recorded& recorded, const std::optional<GeneratedClips>& generated,
                std::optional<looptorch::audio::SpecAugmentOptions> masks, const at::Tensor& mean_M)
      : recorded_(&recorded), generated_(generated ? &*generated : nullptr), mean_M1_(mean_M.unsqueeze(1)) {
    if (!masks) return;
    masks->fill = 0;
    augment_.emplace(*masks);
  }

  [[nodiscard]] std::int64_t size() const {
    return recorded_->size() + (generated_ ? generated_->size() : 0);
  }

  [[nodiscard]] Clip get(std::int64_t index, const looptorch::SampleContext& context) const {
    auto clip =
        index < recorded_->size() ? recorded_->get(index) : generated_->get(index - recorded_->size());
    if (augment_)
      clip.spectrogram_1MF = (*augment_)(clip.spectrogram_1MF - mean_M1_, context.seed).add_(mean_M1_);
    return clip;
  }

  [[nodiscard]] Batch collate(std::span<Clip> clips) const { return recorded_->collate(clips); }

  [[nodiscard]] std::filesystem::path path(std::int64_t index) const {
    return index < recorded_->size() ? recorded_->path(index) : generated_->path(index - recorded_->size());
  }

  /// Identifies a generated clip by its file's name and its number among generated clips.
  [[nodiscard]] std::string fingerprint(std::int64_t index) const {
    if (index < recorded_->size()) return recorded_->fingerprint(index);
    const std::int64_t generated = index - recorded_->size();
    return looptorch::message(generated_->path(generated).filename().string(), '|', generated);
  }

 private:
  const Recorded* recorded_;
  const GeneratedClips* generated_;
  at::Tensor mean_M1_;
  std::optional<looptorch::audio::SpecAugment> augment_;
};

/// All clips of a run.
struct TrainingData {
  Clips train, validation, test;
  std::optional<GeneratedClips> generated;
};

/// Returns the clips of `options`. Throws LeakageError if a training clip is also held out. Lists wrong lines
/// and unreadable clips in `notes`, or throws the first error, as the options say. Throws what load_songs,
/// split_songs and GeneratedClips throw.
[[nodiscard]] inline TrainingData load_training_data(const TrainOptions& options, std::int64_t n_mels,
                                                     spectrogram_gan::Notes& notes) {
  const auto splits = spectrogram_gan::load_splits(options.data, options.training, notes);
  const auto clips = [&](const auto& songs) {
    return spectrogram_gan::cached_clips(songs, n_mels, options.cache(), notes);
  };
  TrainingData data{.train = clips(splits.train),
                    .validation = clips(splits.validation),
                    .test = clips(splits.test),
                    .generated = {}};
  const auto require_no_leakage = [&](const auto&... training) {
    spectrogram_gan::require_no_leakage(options.training.loader_options(), notes.skipped, data.validation,
                                        data.test, training...);
  };
  if (options.generated.empty()) {
    require_no_leakage(data.train);
  } else {
    data.generated.emplace(options.generated, spectrogram_gan::SpectrogramOptions{.mel_bins = n_mels});
    require_no_leakage(data.train, *data.generated);
  }
  return data;
}

}  // namespace spectrogram_vit
