// SPDX-License-Identifier: MIT
// The word error rate of a model on held-out speech, and what it heard.
#pragma once

#include <looptorch/data/pinned_prefetch_loader.hpp>
#include <looptorch/error.hpp>
#include <looptorch/metrics/english_normalizer.hpp>
#include <looptorch/metrics/normalize.hpp>
#include <looptorch/metrics/word_error_rate.hpp>

#include "command_line.hpp"
#include "data.hpp"
#include "recognizer.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace whisper {

/// What both texts become before their words are compared.
struct Normalizer {
  std::string name;
  std::string (*apply)(std::string_view);
};

/// `english`: Whisper's own, as in the literature: numbers, contractions and British spellings are evened
/// out. `marks`: lower case without punctuation, with the combining marks that Whisper's normaliser for other
/// languages strips, Devanagari's vowel signs among them. `none`: texts as they are. `auto`: `english` for
/// the language "en", else `marks`. Throws CommandLineError for another name.
inline Normalizer choose_normalizer(const std::string& name, const std::string& language) {
  if (name == "auto") return choose_normalizer(language == "en" ? "english" : "marks", language);
  if (name == "english") return {name, looptorch::normalize_english};
  if (name == "marks") return {name, looptorch::normalize_text};
  if (name == "none") return {name, [](std::string_view text) { return std::string(text); }};
  throw CommandLineError(
      looptorch::detail::message("--normalizer: \"", name, "\" is not auto, english, marks or none"));
}

/// What was said and what a model heard, clip by clip, and the word error rate of all after normalisation.
struct Transcripts {
  std::vector<std::string> references, hypotheses;
  double word_error_rate = 0;
};

/// Total errors over total words of the normalised references.
inline double word_error_rate(const std::vector<std::string>& references,
                              const std::vector<std::string>& hypotheses, const Normalizer& normalizer) {
  looptorch::WordErrorRate errors;
  for (std::size_t i = 0; i < references.size(); ++i)
    errors.add(normalizer.apply(references[i]), normalizer.apply(hypotheses[i]));
  return errors.rate();
}

/// Transcribes a dataset, several clips at a time.
inline Transcripts transcribe_all(Recognizer& recognizer, const SpeechDataset& speech, std::int64_t workers,
                                  const Normalizer& normalizer) {
  Transcripts result;
  looptorch::PinnedPrefetchLoader batches(speech, {.batch_size = 16, .workers = workers});
  for (auto& batch : batches) {
    for (auto& text : recognizer.transcribe(batch.mel_BMT)) result.hypotheses.push_back(std::move(text));
    for (auto& text : batch.texts) result.references.push_back(std::move(text));
  }
  result.word_error_rate = word_error_rate(result.references, result.hypotheses, normalizer);
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
