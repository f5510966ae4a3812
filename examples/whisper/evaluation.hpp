// SPDX-License-Identifier: MIT
// The word error rate of a model on held-out speech, and what it heard.
#pragma once

#include <looptorch/data/pinned_prefetch_loader.hpp>
#include <looptorch/metrics/normalize.hpp>
#include <looptorch/metrics/word_error_rate.hpp>

#include "data.hpp"
#include "recognizer.hpp"

#include <algorithm>
#include <cstdint>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

namespace whisper {

/// What was said and what a model heard, clip by clip, and the word error rate of all after normalisation.
struct Transcripts {
  std::vector<std::string> references, hypotheses;
  double word_error_rate = 0;
};

/// Transcribes a dataset, several clips at a time.
inline Transcripts transcribe_all(Recognizer& recognizer, const SpeechDataset& speech, std::int64_t workers) {
  Transcripts result;
  looptorch::PinnedPrefetchLoader batches(speech, {.batch_size = 16, .workers = workers});
  for (auto& batch : batches) {
    for (auto& text : recognizer.transcribe(batch.mel_BMT)) result.hypotheses.push_back(std::move(text));
    for (auto& text : batch.texts) result.references.push_back(std::move(text));
  }
  looptorch::WordErrorRate errors;
  for (std::size_t i = 0; i < result.references.size(); ++i) {
    errors.add(looptorch::normalize_text(result.references[i]),
               looptorch::normalize_text(result.hypotheses[i]));
  }
  result.word_error_rate = errors.rate();
  return result;
}

/// Prints `count` clips from the whole range: what was said, what was heard before training, and what after.
inline void print_side_by_side(std::ostream& out, const Transcripts& before, const Transcripts& after,
                               std::size_t count) {
  const auto size = before.references.size();
  for (std::size_t i = 0; i < std::min(count, size); ++i) {
    const auto clip = i * size / std::min(count, size);
    out << "\nreference  " << before.references[clip] << "\nbefore     " << before.hypotheses[clip]
        << "\nafter      " << after.hypotheses[clip] << "\n";
  }
  out << "\n";
}

}  // namespace whisper
