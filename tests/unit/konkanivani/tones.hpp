// SPDX-License-Identifier: MIT
// Three short clips with texts, and a recognizer of their characters.
#pragma once

#include "support/precompiled.hpp"

#include <looptorch/audio/encode.hpp>

#include "support.hpp"
#include "support/temporary_folder.hpp"

#include <konkanivani/clips/speech_dataset.hpp>
#include <konkanivani/decoding/recognizer.hpp>

#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace konkanivani_test {

inline konkanivani::Recognizer tiny_recognizer(int64_t mel_bins = 6) {
  const std::vector<std::string> texts{"कखग"};
  auto vocabulary = konkanivani::Vocabulary::of(texts, konkanivani::Unit::code_point);
  auto config = tiny_config(vocabulary.size());
  config.mel_bins = mel_bins;
  return {tiny_model(config), std::move(vocabulary)};
}

/// Three clips: tones of different pitch and length, each with its text.
struct Tones {
  Tones() {
    for (const auto& [text, seconds, pitch] :
         {std::tuple{"क", 0.5, 0.1}, std::tuple{"खग", 0.8, 0.3}, std::tuple{"गक", 0.7, 0.02}}) {
      const auto file = folder / (std::string(text) + ".wav");
      const auto t = at::arange(static_cast<int64_t>(seconds * 16000), at::kFloat);
      looptorch::audio::encode(file, {0.4 * (t * pitch).sin(), 16000});
      utterances.push_back({.audio_filepath = file, .text = text, .duration = seconds});
    }
  }
  [[nodiscard]] konkanivani::SpeechDataset dataset(const konkanivani::Vocabulary& vocabulary) {
    return {utterances, vocabulary, {.mel_bins = 20}, unknown};
  }

  looptorch::testing::TemporaryFolder folder;
  std::vector<looptorch::Utterance> utterances;
  konkanivani::UnknownCharacters unknown;
};

}  // namespace konkanivani_test
