// SPDX-License-Identifier: MIT
// Transcribes held-out speech with a model and computes the word error rate, over all clips and by language.
#pragma once

#include <looptorch/app/summary.hpp>
#include <looptorch/base/out_of_memory.hpp>
#include <looptorch/base/rank_reduction.hpp>
#include <looptorch/data/loader/pinned_prefetch_loader.hpp>
#include <looptorch/memory/empty_cache.hpp>
#include <looptorch/metrics/character_error_rate.hpp>
#include <looptorch/metrics/edit_alignment.hpp>
#include <looptorch/metrics/word_error_rate.hpp>

#include "../clips/batch.hpp"
#include "../clips/speech_dataset.hpp"
#include "../decoding/recognizer.hpp"
#include "../text/normalizers.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace whisper {

/// The word error rate of a set of clips, and of its clips in each language.
struct ErrorRates {
  double all = 0;  ///< The total errors over the total words.
  std::map<std::string, double> by_language;
};

/// Counts wrong words of normalised texts, by language.
class WordErrors {
 public:
  /// `normalizer` is a name that choose_normalizer takes.
  explicit WordErrors(std::string normalizer) : normalizer_(std::move(normalizer)) {}

  void add(const std::string& reference, const std::string& hypothesis, const std::string& language) {
    const auto normalizer = choose_normalizer(normalizer_, language);
    const auto errors =
        looptorch::count_word_errors(normalizer.apply(reference), normalizer.apply(hypothesis));
    all_ += errors;
    by_language_[language] += errors;
  }

  /// Sums the counts of a run's ranks. Counts by language are not summed: they stay this rank's.
  void all_reduce(looptorch::RankReduction& reduction) { all_.all_reduce("words", reduction); }

  [[nodiscard]] const std::string& normalizer() const { return normalizer_; }

  [[nodiscard]] ErrorRates rates() const {
    ErrorRates rates{.all = all_.rate(), .by_language = {}};
    for (const auto& [language, errors] : by_language_) rates.by_language[language] = errors.rate();
    return rates;
  }

 private:
  std::string normalizer_;
  looptorch::EditCounts all_;
  std::map<std::string, looptorch::EditCounts> by_language_;
};

/// The spoken texts, their languages and a model's transcripts, clip by clip.
struct Transcripts {
  std::vector<std::string> references, hypotheses, languages;

  [[nodiscard]] ErrorRates error_rates(const std::string& normalizer) const {
    WordErrors errors(normalizer);
    for (std::size_t i = 0; i < references.size(); ++i)
      errors.add(references[i], hypotheses[i], languages[i]);
    return errors.rates();
  }

  /// Returns the character error rate of the normalised texts, spaces between words included.
  [[nodiscard]] double character_error_rate(const std::string& normalizer) const {
    looptorch::CharacterErrorRate errors;
    for (std::size_t i = 0; i < references.size(); ++i) {
      auto chosen = choose_normalizer(normalizer, languages[i]);
      if (chosen.name == "characters") chosen = choose_normalizer("marks", languages[i]);
      errors.add(chosen.apply(references[i]), chosen.apply(hypotheses[i]));
    }
    return errors.rate();
  }

  /// Returns the names of the normalisers that are used: "english, marks".
  [[nodiscard]] std::string normalizers(const std::string& normalizer) const {
    std::set<std::string> names;
    for (const auto& language : languages) names.insert(choose_normalizer(normalizer, language).name);
    std::string all;
    for (const auto& name : names) all += (all.empty() ? "" : ", ") + name;
    return all;
  }
};

/// Transcribes a batch, `at_once` clips at a time. If memory runs out, halves `at_once`, reports that on
/// stderr, and retries. Rethrows the error if one clip needs too much memory.
inline std::vector<Transcript> transcribe_in_parts(Recognizer& recognizer, const Batch& batch,
                                                   std::int64_t& at_once) {
  const std::int64_t clips = batch.mel_BMT.size(0);
  std::vector<Transcript> transcripts;
  while (std::ssize(transcripts) < clips) {
    const std::int64_t begin = std::ssize(transcripts), count = std::min(at_once, clips - begin);
    const Batch part = count == clips ? batch : batch.slice(begin, begin + count);
    try {
      const auto states_BSD =
          part.encoded ? part.mel_BMT.to(recognizer.options()) : recognizer.encode(part.mel_BMT);
      for (auto& text : recognizer.decode_states(states_BSD, part.languages))
        transcripts.push_back(std::move(text));
      continue;
    } catch (...) {
      if (count == 1 || !looptorch::ran_out_of_memory()) throw;
    }
    looptorch::empty_cache(recognizer.options().device());
    at_once = (count + 1) / 2;
    std::cerr << "memory ran out as " << count << " clips were transcribed at once; goes on with " << at_once
              << std::endl;
  }
  return transcripts;
}

/// Transcribes a dataset, `clips` at a time, or fewer if memory runs out. Clips without a language get the
/// one that they were decoded in.
inline Transcripts transcribe_all(Recognizer& recognizer, const SpeechDataset& speech, std::int64_t workers,
                                  std::int64_t clips = 16) {
  Transcripts result;
  std::int64_t at_once = clips;
  looptorch::PinnedPrefetchLoader batches(speech, {.batch_size = clips, .workers = workers});
  for (auto& batch : batches) {
    auto transcripts = transcribe_in_parts(recognizer, batch, at_once);
    for (std::size_t i = 0; i < transcripts.size(); ++i) {
      result.references.push_back(std::move(batch.texts[i]));
      result.hypotheses.push_back(std::move(transcripts[i].text));
      result.languages.push_back(
          std::move(batch.languages[i].empty() ? transcripts[i].language : batch.languages[i]));
    }
  }
  return result;
}

/// Sets the error rate NAME, and if there are several languages also NAME_de and the like.
inline void set_error_rates(looptorch::app::Summary& summary, const std::string& name,
                            const ErrorRates& rates) {
  summary.set(name, rates.all);
  if (rates.by_language.size() < 2) return;
  for (const auto& [language, rate] : rates.by_language) summary.set(name + "_" + language, rate);
}

}  // namespace whisper
