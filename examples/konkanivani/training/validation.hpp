// SPDX-License-Identifier: MIT
// Measures the validation clips after each epoch: their loss and their transcripts, in one pass.
#pragma once

#include <looptorch/app/ranks.hpp>
#include <looptorch/app/summary.hpp>
#include <looptorch/audio/sound_examples.hpp>
#include <looptorch/base/example.hpp>
#include <looptorch/base/rank_reduction.hpp>
#include <looptorch/base/stopwatch.hpp>
#include <looptorch/loop/context.hpp>
#include <looptorch/metrics/character_error_rate.hpp>
#include <looptorch/metrics/edit_alignment.hpp>
#include <looptorch/metrics/text_example.hpp>
#include <looptorch/metrics/word_error_rate.hpp>

#include "../clips/batch.hpp"
#include "../clips/speech_dataset.hpp"
#include "../decoding/recognizer.hpp"
#include "../model/loss.hpp"
#include "evaluation.hpp"
#include "train_options.hpp"

#include <algorithm>
#include <cstddef>
#include <iostream>
#include <map>
#include <string>
#include <vector>

namespace konkanivani {

/// Measures for looptorch::Validate: `loss` and its parts as means over characters, and the transcripts'
/// `cer` and `wer`, over all ranks' clips. The leading rank adds its transcripts to `collector`.
class ValidationMeasure {
 public:
  /// All must outlive it.
  ValidationMeasure(const Recognizer& recognizer, const TrainOptions& options, TranscriptCollector& collector)
      : recognizer_(&recognizer), options_(&options), collector_(&collector) {}

  void add(KonkaniVani& model, const Batch& batch) {
    const auto encoded = model->encode(batch.mel_BMF, batch.lengths_B);
    const auto hypotheses = recognize(model, encoded, options_->decoding());
    for (std::size_t i = 0; i < hypotheses.size(); ++i) {
      const auto text = recognizer_->vocabulary.decode(hypotheses[i].front().ids);
      characters_ += looptorch::count_character_errors(batch.texts[i], text);
      words_ += looptorch::count_word_errors(batch.texts[i], text);
    }
    if (looptorch::app::leads()) collector_->add(batch, hypotheses, recognizer_->vocabulary);
    const auto loss = joint_loss(model, encoded, batch.targets, options_->loss());
    const double weight = loss.weight.number();
    weight_ += weight;
    sums_["loss"] += loss.sum.item<double>();
    for (const auto& metric : loss.metrics)
      sums_[metric.name] +=
          weight * (metric.value.is_known() ? metric.value.number() : metric.value.tensor().item<double>());
  }

  /// Sums the measurements of a run's ranks.
  void all_reduce(looptorch::RankReduction& reduction) {
    const double ctc = options_->ctc_weight;
    for (const char* name : {"loss", "too_short"}) reduction.sum(name, sums_[name]);
    if (ctc > 0) reduction.sum("ctc", sums_["ctc"]);
    if (ctc < 1) reduction.sum("attention", sums_["attention"]);
    reduction.sum("characters", weight_);
    characters_.all_reduce("characters", reduction);
    words_.all_reduce("words", reduction);
  }

  [[nodiscard]] std::map<std::string, double> result() const {
    std::map<std::string, double> means;
    for (const auto& [name, sum] : sums_) means[name] = sum / weight_;
    means["cer"] = characters_.rate(), means["wer"] = words_.rate();
    return means;
  }

 private:
  const Recognizer* recognizer_;
  const TrainOptions* options_;
  TranscriptCollector* collector_;
  looptorch::EditCounts characters_, words_;
  std::map<std::string, double> sums_;
  double weight_ = 0;
};

/// Measures the validations of a run, prints them and offers texts and sound to its report.
class Validation {
 public:
  /// All must outlive it.
  Validation(const Recognizer& recognizer, const SpeechDataset& clips, const TrainOptions& options)
      : recognizer_(recognizer), clips_(clips), options_(options) {}

  [[nodiscard]] ValidationMeasure measure() { return {recognizer_, options_, collector_}; }

  /// Prints the measured error rates, adds them to the curve, and offers examples to the report.
  void report(const looptorch::EpochContext& epoch) {
    auto transcripts = collector_.take();
    const auto& metrics = epoch.run.metrics();
    transcripts.character_error_rate = metrics.find("validation.cer").value();
    transcripts.word_error_rate = metrics.find("validation.wer").value();
    add_to_curve(options_.output / "curve.csv", epoch.run.progress().step, stopwatch_.seconds(), transcripts);
    std::cout << "    CER " << transcripts.character_error_rate << ", WER " << transcripts.word_error_rate
              << "\n";
    print_examples(std::cout, transcripts, 3);
    std::cout << std::flush;
    if (looptorch::app::leads()) epoch.run.offer_examples("validation", shown(transcripts));
  }

 private:
  /// Returns eight clips from the whole range, with unrecognised words marked, and as much of their sound as
  /// there is room for.
  std::vector<looptorch::Example> shown(const Transcripts& transcripts) {
    std::vector<looptorch::Example> examples;
    std::vector<looptorch::audio::TitledClip> clips;
    for (const std::size_t clip : looptorch::evenly_spaced(8, transcripts.references.size())) {
      const auto words = looptorch::align_words(transcripts.references[clip], transcripts.hypotheses[clip]);
      const auto title = "clip " + std::to_string(clip + 1);
      examples.emplace_back(looptorch::text_example(title, words));
      clips.push_back({title, clips_.utterance(transcripts.indices[clip])});
    }
    if (options_.training.report && options_.report_sound) sounds_.add_to(examples, clips);
    return examples;
  }

  looptorch::Stopwatch stopwatch_;
  const Recognizer& recognizer_;
  const SpeechDataset& clips_;
  const TrainOptions& options_;
  TranscriptCollector collector_;
  looptorch::audio::SoundExamples sounds_;
};

}  // namespace konkanivani
