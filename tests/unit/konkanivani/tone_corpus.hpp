// SPDX-License-Identifier: MIT
// A corpus of tones with texts, for the tests of KonkaniVani's clips.
#pragma once

#include "support/precompiled.hpp"

#include <looptorch/audio/encode.hpp>

#include "support/temporary_folder.hpp"

#include <konkanivani/clips/speech_dataset.hpp>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace konkanivani_test {

/// A tone with a swell, so that its frames differ.
inline at::Tensor tone(int64_t samples, double pitch = 0.1) {
  const auto t = at::arange(samples, at::kFloat);
  return 0.4 * (t * pitch).sin() * (0.6 + 0.4 * (t * 0.003).sin());
}

inline konkanivani::Vocabulary vocabulary() {
  const std::vector<std::string> texts{"कखग घ"};
  return konkanivani::Vocabulary::of(texts, konkanivani::Unit::code_point);
}

/// Files of these lengths, each with its text.
struct Corpus {
  explicit Corpus(const std::vector<std::pair<int64_t, std::string>>& clips) {
    for (const auto& [samples, text] : clips) {
      const auto file = folder / (std::to_string(utterances.size()) + ".wav");
      looptorch::audio::encode(file,
                               {tone(samples, 0.1 + 0.03 * static_cast<double>(utterances.size())), 16000});
      utterances.push_back(
          {.audio_filepath = file, .text = text, .duration = static_cast<double>(samples) / 16000});
    }
  }

  [[nodiscard]] konkanivani::SpeechDataset dataset(konkanivani::SpeechOptions options = {}) {
    return {utterances, vocabulary(), options, unknown};
  }

  looptorch::testing::TemporaryFolder folder;
  std::vector<looptorch::Utterance> utterances;
  konkanivani::UnknownCharacters unknown;
};

}  // namespace konkanivani_test
