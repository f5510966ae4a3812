// SPDX-License-Identifier: MIT
// Writes and prints the results when a fine-tuning run ends: the model or its adapters, the transcripts
// before and after training, the skipped clips, and summary.json. validation.hpp writes the learning curve.
#pragma once

#include <looptorch/app/summary.hpp>
#include <looptorch/base/files/atomic_file.hpp>
#include <looptorch/base/files/file.hpp>
#include <looptorch/loop/fit.hpp>
#include <looptorch/policies/restore_best.hpp>

#include "../clips/corpus.hpp"
#include "evaluation.hpp"
#include "options.hpp"
#include "transcripts_file.hpp"
#include "transcripts_text.hpp"
#include "validation.hpp"

#include <cstddef>
#include <filesystem>
#include <iostream>
#include <string>
#include <utility>

namespace whisper {

/// Returns the untrained model's transcripts. A resumed run reads those that were saved at its beginning.
inline Transcripts transcribe_before(Recognizer& recognizer, const Corpus& corpus,
                                     const FinetuneOptions& options, bool resumed) {
  const auto file = options.output / "before.json";
  const TranscriptsKey key{options.model, options.language, corpus.test_seconds, options.fallback};
  if (resumed) {
    if (auto known = load_transcripts(file, key, corpus.test)) return *std::move(known);
  }
  std::cout << "transcribing " << corpus.test.size() << " clips" << std::endl;
  auto before = transcribe_all(recognizer, corpus.test, options.training.workers, options.clips_at_once());
  save_transcripts(file, key, corpus.test, before);
  return before;
}

/// Writes the model, or its adapters, to the output folder. Then merges adapters into the weights, unless
/// these have 8 bits: widened they might not fit.
inline void save_trained(Whisper& model, const FinetuneOptions& options) {
  if (options.memory.lora == 0)
    return save_pretrained(model, options.model, options.output, dtype_of(options.save_dtype));
  save_adapters(model, options.model, options.output);
  if (!options.memory.int8_base) looptorch::fold_lora(*model);
}

/// Adds the training clips that the loader could not read, and prints them. Writes all skipped clips and
/// lines to skipped.txt, which a resumed run continues.
inline void report_skipped(Corpus& corpus, looptorch::SkippedSamples unreadable,
                           const std::filesystem::path& folder, bool resumed) {
  auto& skipped = corpus.skipped;
  const auto known = skipped.count();
  for (auto& sample : unreadable.first) {
    const auto& clip = corpus.train.utterances().at(static_cast<std::size_t>(sample.index));
    sample.message = corpus.lines.train.placed(sample.message, clip);
  }
  skipped.add(unreadable);
  std::cerr << skipped.describe({.from = known, .at_most = kListedClips}) << std::flush;
  for (const auto* lines : {&corpus.lines.train, &corpus.lines.validation, &corpus.lines.test})
    for (const auto& line : lines->skipped()) skipped.add(line);
  const auto file = folder / "skipped.txt";
  if (resumed && std::filesystem::exists(file)) skipped.add_lines(looptorch::read_file(file));
  if (skipped.count() > 0)
    looptorch::write_file_atomically(file, skipped.list());
  else
    std::filesystem::remove(file);
}

/// Adds the step and the value of the best measurement of `metric`, such as "validation.wer", if its weights
/// were kept.
inline void report_best(looptorch::app::Summary& summary, const std::string& metric,
                        const looptorch::RestoreBest::State& kept) {
  if (!kept.restored) return;
  const auto name = metric.substr(metric.find('.') + 1);
  summary.set("best_step", kept.best.step()).set("best_" + name, *kept.best.value());
}

/// The transcripts before and after training, and their errors.
struct Comparison {
  Comparison(Transcripts transcripts_before, Transcripts transcripts_after, const std::string& normalizer)
      : before(std::move(transcripts_before)),
        after(std::move(transcripts_after)),
        rates_before(before.error_rates(normalizer)),
        rates_after(after.error_rates(normalizer)) {}

  Transcripts before, after;
  ErrorRates rates_before, rates_after;
};

/// Adds the error rates and the curve to the summary.
inline void set_result(looptorch::app::Summary& summary, const Comparison& comparison,
                       const FinetuneOptions& options, const looptorch::FitResult& result) {
  set_error_rates(summary, "wer_before", comparison.rates_before);
  set_error_rates(summary, "wer_after", comparison.rates_after);
  summary.set("normalizer", comparison.after.normalizers(options.normalizer));
  summary.set("steps", result.steps);
  set_curve(summary, options.output);
}

/// Prints some clips and the error rates.
inline void print_result(const Comparison& comparison, const FinetuneOptions& options,
                         const looptorch::FitResult& result, double seconds) {
  print_side_by_side(std::cout, comparison.before, comparison.after, 3);
  if (comparison.rates_after.by_language.size() > 1)
    for (const auto& [language, rate] : comparison.rates_after.by_language) {
      const auto before =
          comparison.rates_before.by_language.find(language);  // none if languages were detected
      if (before != comparison.rates_before.by_language.end())
        std::cout << "word error rate in " << language << " " << before->second << " before, " << rate
                  << " after\n";
    }
  if (!result.reason.empty()) std::cout << "stopped early: " << result.reason << "\n";
  std::cout << "word error rate " << comparison.rates_before.all << " before, " << comparison.rates_after.all
            << " after " << result.steps << " steps; " << seconds << " s in all" << std::endl;
  if (!options.training.quick)  // a rehearsal has already said that it has no result
    std::cout << "the model is in " << options.output.string() << std::endl;
}

}  // namespace whisper
