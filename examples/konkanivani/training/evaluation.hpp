// SPDX-License-Identifier: MIT
// Transcribes held-out speech with a model, and computes the character and word error rates.
// konkanivani_train uses it for the test clips, and konkanivani_evaluate for any manifest.
#pragma once

#include <looptorch/data/loader/pinned_prefetch_loader.hpp>
#include <looptorch/loop/evaluation.hpp>
#include <looptorch/metrics/character_error_rate.hpp>
#include <looptorch/metrics/text_example.hpp>
#include <looptorch/metrics/word_error_rate.hpp>
#include <looptorch/report/learning_curve.hpp>

#include "../clips/batch.hpp"
#include "../clips/speech_dataset.hpp"
#include "../decoding/recognizer.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

namespace konkanivani {

/// The spoken texts and the transcripts, both normalised, in the order of the dataset's clips, and error
/// rates over all clips: wrong characters (code points) by characters, wrong words by words.
struct Transcripts {
  std::vector<std::string> references, hypotheses;
  double character_error_rate = 0, word_error_rate = 0;
  std::vector<std::int64_t> indices = {};  ///< the clips' numbers in their dataset, if known
};

[[nodiscard]] inline Transcripts with_error_rates(std::vector<std::string> references,
                                                  std::vector<std::string> hypotheses) {
  looptorch::CharacterErrorRate characters;
  looptorch::WordErrorRate words;
  for (std::size_t i = 0; i < references.size(); ++i) {
    characters.add(references[i], hypotheses[i]);
    words.add(references[i], hypotheses[i]);
  }
  return {std::move(references), std::move(hypotheses), characters.rate(), words.rate(), {}};
}

/// Collects the transcripts of batches, which may come in any order.
class TranscriptCollector {
 public:
  /// Adds `texts`, the result of `recognize` for the clips of `batch`.
  void add(const Batch& batch, const std::vector<std::vector<Hypothesis>>& texts,
           const Vocabulary& vocabulary) {
    for (std::size_t i = 0; i < texts.size(); ++i)
      clips_.push_back({batch.indices[i], batch.texts[i], vocabulary.decode(texts[i].front().ids)});
  }

  /// Returns and removes everything added so far.
  [[nodiscard]] Transcripts take() {
    auto clips = std::exchange(clips_, {});
    std::sort(clips.begin(), clips.end(), [](const Clip& a, const Clip& b) { return a.index < b.index; });
    std::vector<std::string> references, hypotheses;
    std::vector<std::int64_t> indices;
    for (auto& clip : clips) {
      indices.push_back(clip.index);
      references.push_back(std::move(clip.reference));
      hypotheses.push_back(std::move(clip.hypothesis));
    }
    auto transcripts = with_error_rates(std::move(references), std::move(hypotheses));
    transcripts.indices = std::move(indices);
    return transcripts;
  }

 private:
  struct Clip {
    std::int64_t index;
    std::string reference, hypothesis;
  };
  std::vector<Clip> clips_;
};

/// Transcribes a dataset, in eval mode, in batches of similar length. Lists clips that fail in `skipped`; if
/// that is null, throws LoaderError.
[[nodiscard]] inline Transcripts transcribe_all(Recognizer& recognizer, const SpeechDataset& speech,
                                                const BatchSize& size,
                                                const looptorch::LoaderOptions& loading,
                                                const DecodingOptions& decoding,
                                                SkippedItems* skipped = nullptr) {
  const looptorch::EvalScope eval_scope(*recognizer.model);
  const auto device = recognizer.model->parameters().front().device();
  auto options = loading;
  options.on_error = skipped == nullptr ? looptorch::OnError::fail : looptorch::OnError::skip;
  looptorch::PinnedPrefetchLoader batches(speech, options, speech.by_length(size));
  TranscriptCollector collector;
  for (auto& batch : batches)
    collector.add(batch,
                  recognize(recognizer.model, batch.mel_BMF.to(device), batch.lengths_B.to(device), decoding),
                  recognizer.vocabulary);
  if (skipped != nullptr) skipped->add(batches.skipped());
  return collector.take();
}

/// Prints `count` clips from the whole range: the spoken text, and the transcript.
inline void print_examples(std::ostream& out, const Transcripts& transcripts, std::size_t count) {
  for (const std::size_t clip : looptorch::evenly_spaced(count, transcripts.references.size())) {
    out << "    reference   " << transcripts.references[clip] << "\n    hypothesis  "
        << transcripts.hypotheses[clip] << "\n";
  }
}

/// Adds a row to the learning curve in `path`: step, seconds, character and word error rate.
inline void add_to_curve(const std::filesystem::path& path, std::int64_t step, double seconds,
                         const Transcripts& transcripts) {
  looptorch::LearningCurve(path, {"seconds", "cer", "wer"})
      .add(step, {seconds, transcripts.character_error_rate, transcripts.word_error_rate});
}

}  // namespace konkanivani
