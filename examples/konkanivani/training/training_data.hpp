// SPDX-License-Identifier: MIT
// Loads the data of `konkanivani_train`: datasets of training, validation and test clips, and the vocabulary
// of the training texts.
#pragma once

#include <looptorch/data/manifest/manifest.hpp>
#include <looptorch/data/manifest/manifest_split.hpp>

#include "../clips/skipped_items.hpp"
#include "../clips/speech_dataset.hpp"
#include "../text/vocabulary.hpp"
#include "train_options.hpp"

#include <iostream>
#include <string>
#include <utility>
#include <vector>

namespace konkanivani {

struct TrainingData {
  SpeechDataset train, validation, test;
};

/// Returns the vocabulary of the training texts. `load_training_data` reports characters outside it.
[[nodiscard]] inline Vocabulary vocabulary_of(const std::vector<looptorch::Utterance>& train,
                                              const TrainOptions& options) {
  std::vector<std::string> texts;
  for (const auto& utterance : train) texts.push_back(utterance.text);
  return Vocabulary::of(texts, options.characters == "grapheme" ? Unit::grapheme : Unit::code_point);
}

/// Loads the datasets. Reports on stderr unknown characters, and training clips that CTC cannot learn from.
/// Lists unusable items in `skipped`; if that is null, throws.
[[nodiscard]] inline TrainingData load_training_data(looptorch::ManifestSplit corpus,
                                                     const Vocabulary& vocabulary,
                                                     const TrainOptions& options, SkippedItems* skipped) {
  UnknownCharacters unknown;
  const auto dataset = [&](std::vector<looptorch::Utterance> utterances) {
    return SpeechDataset(std::move(utterances), vocabulary, options.speech(), unknown, skipped);
  };
  TrainingData data{dataset(std::move(corpus.train)), dataset(std::move(corpus.validation)),
                    dataset(std::move(corpus.test))};
  if (!unknown.empty()) std::cerr << unknown.describe() << std::endl;
  data.train.augment(options.augmentation());
  if (const auto count = data.train.count_too_short(); count > 0)
    std::cerr << count << " training clips are too short for their text"
              << (options.speed_perturbation ? " at the fastest speed" : "")
              << "; CTC learns nothing from them" << std::endl;
  data.train.pad_texts(options.padded_to());
  return data;
}

}  // namespace konkanivani
