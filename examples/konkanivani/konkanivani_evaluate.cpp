// SPDX-License-Identifier: MIT
// Measures a trained model on a manifest: character and word error rate, by any of the four decodings.
#include <looptorch/app/device.hpp>
#include <looptorch/app/run/output_files.hpp>
#include <looptorch/app/run_main.hpp>
#include <looptorch/app/summary.hpp>
#include <looptorch/app/training_flags.hpp>

#include "clips/corpus_layout.hpp"
#include "clips/speech_dataset.hpp"
#include "training/evaluation.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <iterator>

namespace {

namespace app = looptorch::app;
namespace fs = std::filesystem;
namespace kv = konkanivani;

struct Options {
  fs::path model, manifest, summary;
  kv::DecodingOptions decoding{.method = "joint", .beam = {}};
  std::int64_t beam = 8, examples = 5;
  double max_seconds = 20;
  app::TrainingOptions reading{.batch_size = 16};
};

void evaluate(Options options) {
  app::require_distinct_files({{"summary", options.summary}}, {{"manifest", options.manifest}});
  kv::SkippedItems listed;
  const app::PrintAtEnd print_at_end(listed);
  auto* const skipped = options.reading.skips_bad_audio() ? &listed : nullptr;
  options.decoding.beam.beam = static_cast<std::size_t>(options.beam);
  auto recognizer = kv::load_recognizer(options.model, app::choose_device(options.reading.device));
  const auto& config = recognizer.model->config();
  kv::UnknownCharacters unknown;
  const kv::SpeechDataset speech(
      kv::read_manifest(options.manifest, skipped), recognizer.vocabulary,
      {.mel_bins = config.mel_bins, .max_seconds = options.max_seconds, .subsampling = config.subsampling},
      unknown, skipped);
  if (!unknown.empty()) std::cerr << unknown.describe() << std::endl;
  const auto transcripts =
      kv::transcribe_all(recognizer, speech, {.clips = options.reading.batch_size},
                         {.workers = options.reading.workers}, options.decoding, skipped);
  kv::print_examples(std::cout, transcripts, static_cast<std::size_t>(options.examples));
  std::cout << "CER " << transcripts.character_error_rate << ", WER " << transcripts.word_error_rate
            << " over " << transcripts.references.size() << " clips" << std::endl;
  if (options.summary.empty()) return;
  app::Summary summary;
  summary.set("cer", transcripts.character_error_rate).set("wer", transcripts.word_error_rate);
  summary.set("clips", std::ssize(transcripts.references)).set("skipped", std::int64_t(listed.count()));
  summary.set("decoding", options.decoding.method).write(options.summary);
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  app::CommandLine line("konkanivani_evaluate", "Measures the error rates of a model on a manifest.");
  line.required("model", "DIR", options.model, "folder that konkanivani_train wrote");
  line.required("manifest", "FILE", options.manifest, "JSONL, CSV or TSV; Common Voice's TSV as it is");
  line.option("decoding", "NAME", options.decoding.method, "greedy, ctc, attention or joint");
  line.option("beam", "N", options.beam, "hypotheses that the beam search keeps", {.min = 1, .max = 1024});
  line.option("ctc-weight", "X", options.decoding.beam.ctc_weight, "of joint decoding", {.min = 0, .max = 1});
  line.option("examples", "N", options.examples, "clips that are shown", {.min = 0});
  line.option("summary", "FILE", options.summary, "JSON with cer, wer, clips and decoding");
  line.option("max-seconds", "S", options.max_seconds, "longer clips are refused", {.max = 60, .above = 0});
  using app::TrainingFlag;
  app::add_training_flags(
      line, options.reading,
      {.only = {TrainingFlag::batch_size, TrainingFlag::device, TrainingFlag::workers,
                TrainingFlag::on_bad_audio},
       .help = {{TrainingFlag::batch_size, "clips at once"},
                {TrainingFlag::workers, "threads that read audio"},
                {TrainingFlag::on_bad_audio,
                 "skips lines, texts and clips that cannot be used and lists them, or stops at the first"}}});
  line.on_parsed(
      [&](const app::CommandLine& parsed) { kv::check_decoding_flags(parsed, options.decoding.method); });
  return app::run_main(argc, argv, line, [&] { evaluate(options); });
}
