// SPDX-License-Identifier: MIT
// Measures a model on the clips of a manifest: word and character error rate, of all clips and by language,
// decoded as in whisper_transcribe. It shows how a data set is checked and read without a Trainer.
#include <looptorch/app/device.hpp>
#include <looptorch/app/run/output_files.hpp>
#include <looptorch/app/run_main.hpp>
#include <looptorch/app/summary.hpp>
#include <looptorch/app/training_flags.hpp>
#include <looptorch/app/weights/hub_model.hpp>
#include <looptorch/audio/clip_limits.hpp>
#include <looptorch/base/stopwatch.hpp>
#include <looptorch/state/weights/finite_weights.hpp>

#include "clips/clip_check.hpp"
#include "clips/corpus.hpp"
#include "decoding/decoding_flags.hpp"
#include "training/evaluation.hpp"
#include "training/transcripts_file.hpp"
#include "training/transcripts_text.hpp"

#include <cstdint>
#include <filesystem>
#include <iostream>
#include <string>
#include <utility>

namespace {

namespace app = looptorch::app;
namespace fs = std::filesystem;

struct Options {
  fs::path model, summary, transcripts;
  whisper::ClipSource clips;
  whisper::DecodingFlags decoding;
  std::string language = "en", normalizer = "auto";
  std::int64_t examples = 3;
  app::TrainingOptions reading;
};

void report(const Options& options, const whisper::Transcripts& transcripts, std::size_t skipped,
            double seconds) {
  const auto rates = transcripts.error_rates(options.normalizer);
  const double characters = transcripts.character_error_rate(options.normalizer);
  const auto clips = std::ssize(transcripts.references);
  whisper::print_transcripts(std::cout, transcripts, static_cast<std::size_t>(options.examples));
  if (rates.by_language.size() > 1)
    for (const auto& [language, rate] : rates.by_language)
      std::cout << "word error rate in " << language << " " << rate << "\n";
  std::cout << "word error rate " << rates.all << ", character error rate " << characters << " over " << clips
            << " clips; " << seconds << " s" << std::endl;
  if (options.summary.empty()) return;
  app::Summary summary;
  whisper::set_error_rates(summary, "wer", rates);
  summary.set("cer", characters).set("normalizer", transcripts.normalizers(options.normalizer));
  summary.set("clips", std::int64_t(clips)).set("clips_skipped", std::int64_t(skipped));
  summary.set("seconds", seconds).write(options.summary);
}

void evaluate(const Options& options) {
  const looptorch::Stopwatch stopwatch;
  app::require_distinct_files({{"summary", options.summary}, {"transcripts", options.transcripts}},
                              {{"manifest", options.clips.manifest}});
  (void)whisper::choose_normalizer(options.normalizer, options.language);
  auto recognizer =
      whisper::load_recognizer(options.model, options.reading.choose_device(), options.language);
  looptorch::require_finite_weights(*recognizer.model, options.model.string());
  whisper::tell_renamed(recognizer, options.model, std::cerr);
  options.decoding.apply(recognizer);
  const whisper::ClipCheck check{
      .workers = options.reading.workers,
      .on_bad = options.reading.skips_bad_audio() ? whisper::OnBadAudio::skip : whisper::OnBadAudio::stop};
  whisper::SkippedItems skipped;
  const auto speech = whisper::load_clips(options.clips, recognizer, check, skipped, std::cerr);
  std::cerr << skipped.describe({.at_most = whisper::kListedClips}) << std::flush;
  const auto transcripts = whisper::transcribe_all(recognizer, speech, options.reading.workers);
  if (!options.transcripts.empty())
    whisper::save_transcripts(
        options.transcripts,
        {options.model, options.language, options.clips.max_seconds, options.decoding.fallback}, speech,
        transcripts);
  report(options, transcripts, skipped.count(), stopwatch.seconds());
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  app::CommandLine line("whisper_evaluate",
                        "Measures the word and character error rate of a model on a manifest's clips.");
  line.required("model", "DIR", options.model,
                "Hugging Face folder of the model, or the name of one that was downloaded");
  app::accept_hub_name(line, options.model);
  line.required("manifest", "FILE", options.clips.manifest, "JSONL (audio_filepath, text), CSV or TSV");
  line.option("summary", "FILE", options.summary,
              "JSON to write, with wer, cer, normalizer, clips and seconds");
  line.option("transcripts", "FILE", options.transcripts,
              "JSON to write, with each clip's text and its transcript");
  line.option(
      "language", "CODE", options.language,
      "what is spoken where a line has no \"language\" of its own, as en or English, or auto: detected");
  whisper::accept_language_name(line, options.language);
  line.option(
      "normalizer", "NAME", options.normalizer,
      "of both texts: english (Whisper's), marks, characters, none, or auto: by each clip's language");
  line.option("max-audio-seconds", "S", options.clips.max_seconds,
              "length of the model's window; as in the fine-tuning", {.min = 0.1, .max = 30});
  line.toggle("empty-texts", options.clips.empty_texts,
              "clips without a text are measured, too; each word of their transcripts is an error");
  line.toggle("strict", options.clips.strict,
              "stops at the first wrong line; else wrong lines are listed and skipped");
  line.option("examples", "N", options.examples, "clips that are printed", {.min = 0});
  whisper::add_flags(line, options.decoding);
  using app::TrainingFlag;
  app::add_training_flags(
      line, options.reading,
      {.only = {TrainingFlag::device, TrainingFlag::workers, TrainingFlag::on_bad_audio},
       .help = {
           {TrainingFlag::workers, "threads that read audio"},
           {TrainingFlag::on_bad_audio,
            "clips that are damaged, silent or too long: lists and skips them, or stops at the first"}}});
  return app::run_main(argc, argv, line, [&] { evaluate(options); });
}
