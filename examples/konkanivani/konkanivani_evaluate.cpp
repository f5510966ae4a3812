// SPDX-License-Identifier: MIT
// Measures a trained model on a manifest: character and word error rate, by any of the four decodings.
#include <looptorch/base/files/atomic_file.hpp>
#include <looptorch/base/json/json.hpp>

#include "command_line.hpp"
#include "corpus_layout.hpp"
#include "data.hpp"
#include "device.hpp"
#include "evaluation.hpp"

#include <filesystem>
#include <iostream>
#include <string>

namespace {

namespace fs = std::filesystem;
namespace kv = konkanivani;

struct Options {
  fs::path model, manifest, summary;
  kv::DecodingOptions decoding{.method = "joint", .beam = {}};
  std::int64_t beam = 8, batch_size = 16, workers = 2, examples = 5;
  double max_seconds = 20;
  std::string device = "auto", on_bad_audio = "skip";
};

void evaluate(Options options) {
  kv::check_method(options.decoding.method);
  kv::LeftOut listed;
  const kv::PrintAtEnd print_at_end(listed);
  auto* const left_out = options.on_bad_audio == "skip" ? &listed : nullptr;
  options.decoding.beam.beam = static_cast<std::size_t>(options.beam);
  auto recognizer = kv::load_recognizer(options.model, kv::choose_device(options.device));
  const auto& config = recognizer.model->config();
  kv::UnknownCharacters unknown;
  const kv::SpeechDataset speech(
      kv::read_manifest(options.manifest, left_out), recognizer.vocabulary,
      {.mel_bins = config.mel_bins, .max_seconds = options.max_seconds, .subsampling = config.subsampling},
      unknown, left_out);
  if (!unknown.empty()) std::cerr << unknown.describe() << std::endl;
  const auto heard = kv::transcribe_all(recognizer, speech, {.clips = options.batch_size},
                                        {.workers = options.workers}, options.decoding, left_out);
  kv::print_examples(std::cout, heard, static_cast<std::size_t>(options.examples));
  std::cout << "CER " << heard.character_error_rate << ", WER " << heard.word_error_rate << " over "
            << heard.references.size() << " clips" << std::endl;
  if (options.summary.empty()) return;
  auto summary = looptorch::Json::object();
  summary.set("cer", heard.character_error_rate)
      .set("wer", heard.word_error_rate)
      .set("clips", std::ssize(heard.references))
      .set("left_out", static_cast<std::int64_t>(listed.count()));
  summary.set("decoding", options.decoding.method);
  looptorch::write_file_atomically(options.summary, summary.dump(2) + "\n");
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  kv::CommandLine line("konkanivani_evaluate", "Measures the error rates of a model on a manifest.");
  line.required("model", "DIR", options.model, "folder that konkanivani_train wrote");
  line.required("manifest", "FILE", options.manifest, "JSONL, CSV or TSV; Common Voice's TSV as it is");
  line.option("decoding", "NAME", options.decoding.method, "greedy, ctc, attention or joint");
  line.option("beam", "N", options.beam, "texts that go on", {.min = 1, .max = 1024});
  line.option("ctc_weight", "X", options.decoding.beam.ctc_weight, "of joint decoding", {.min = 0, .max = 1});
  line.option("batch_size", "N", options.batch_size, "clips at once", {.min = 1, .max = 65536});
  line.option("examples", "N", options.examples, "clips that are shown", {.min = 0});
  line.option("summary", "FILE", options.summary, "JSON with cer, wer, clips and decoding");
  line.choice("on_bad_audio", options.on_bad_audio, {"skip", "stop"},
              "leaves out lines, texts and clips that cannot be used and lists them, or stops at the first");
  line.option("workers", "N", options.workers, "threads that read audio", {.min = 0, .max = 1024});
  line.option("max_seconds", "S", options.max_seconds, "longer clips are refused", {.max = 60, .above = 0});
  line.option("device", "NAME", options.device, "cpu, cuda, cuda:1, or auto: cuda if there is one");
  return kv::run_main(argc, argv, line, [&] { evaluate(options); });
}
