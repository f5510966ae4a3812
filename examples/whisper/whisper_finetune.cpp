// SPDX-License-Identifier: MIT
// Fine-tunes Whisper on a manifest of audio and text, and says what that did to the word error rate. It shows
// a whole looptorch run: loader, objective, optimizer, policies, `fit`.
#include <looptorch/base/files/atomic_file.hpp>
#include <looptorch/base/files/file.hpp>
#include <looptorch/base/json/json.hpp>
#include <looptorch/data/loader/pinned_prefetch_loader.hpp>
#include <looptorch/state/snapshot/choose_snapshot.hpp>
#include <looptorch/trainer.hpp>

#include "command_line.hpp"
#include "corpus.hpp"
#include "device.hpp"
#include "evaluation.hpp"
#include "recognizer.hpp"

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <optional>
#include <string>

namespace {

namespace fs = std::filesystem;
namespace lt = looptorch;
using whisper::Batch, whisper::Whisper;

struct Options {
  fs::path model, output;
  whisper::CorpusOptions corpus;
  std::string on_bad_audio = "skip";
  std::int64_t batch_size = 8, gradient_accumulation = 1, epochs = 1, max_steps = 0;
  double learning_rate = 1e-4;
  std::int64_t warmup_steps = 5;
  bool bf16 = false;
  std::string recompute = "none";
  std::string device = "auto", language = "en", normalizer = "auto";
  std::string resume;
  std::int64_t snapshot_every = 0;

  [[nodiscard]] fs::path snapshots() const { return output / "snapshots"; }
  [[nodiscard]] bool takes_snapshots() const { return snapshot_every > 0 || !resume.empty(); }
};

lt::FitResult train(whisper::Recognizer& recognizer, const whisper::Corpus& corpus, const Options& options,
                    const fs::path& snapshot) {
  auto& model = recognizer.model;
  lt::FusedAdamW optimizer(model->parameters(), {.lr = options.learning_rate, .weight_decay = 0.0});
  auto objective = [](Whisper& model, const Batch& batch) {
    const auto logits_BLV = model(batch.mel_BMT, batch.tokens_BL);
    return lt::Loss{.value = whisper::token_mean_loss(logits_BLV, batch.labels_BL),
                    .weight = batch.label_count};
  };
  const bool skips = options.corpus.on_bad_audio == whisper::OnBadAudio::skip;
  const lt::LoaderOptions loading{.batch_size = options.batch_size,
                                  .workers = options.corpus.workers,
                                  .on_error = skips ? lt::OnError::skip : lt::OnError::fail};

  // One policy a line.
  // clang-format off
  lt::Trainer trainer(model, optimizer, objective,
                      lt::Accumulate<>{options.gradient_accumulation},
                      lt::When{options.bf16, lt::Autocast<lt::bf16>{}},
                      lt::When{options.recompute != "none", lt::Checkpointed<whisper::EncoderLayer>{}},
                      lt::When{options.recompute == "all", lt::Checkpointed<whisper::DecoderLayer>{}},
                      lt::ClipGradNorm{1.0},
                      lt::ScheduleLr{.decay = lt::LinearDecay{}, .warmup_steps = options.warmup_steps},
                      lt::Validate{lt::PinnedPrefetchLoader(corpus.validation, loading)},
                      lt::When{options.takes_snapshots(), lt::SnapshotEvery{.folder = options.snapshots(),
                                                                            .steps = options.snapshot_every}},
                      lt::ShowProgress{});
  // clang-format on
  const auto order = lt::RandomSampler{.seed = static_cast<std::uint64_t>(options.corpus.seed)};
  return trainer.fit(lt::PinnedPrefetchLoader(corpus.train, loading, order),
                     {.epochs = options.epochs,
                      .max_steps = options.max_steps > 0 ? std::optional(options.max_steps) : std::nullopt,
                      .resume = snapshot});
}

/// What the model hears before it is trained. A run that goes on from a snapshot reads what was heard when it
/// began.
whisper::Transcripts transcribe_before(whisper::Recognizer& recognizer, const whisper::Corpus& corpus,
                                       const Options& options, const whisper::Normalizer& normalizer,
                                       bool resumed) {
  const auto file = options.output / "before.json";
  const whisper::TranscriptsKey key{options.model, options.language, corpus.max_seconds};
  if (resumed) {
    if (auto known = whisper::load_transcripts(file, key, corpus.test, normalizer)) return *std::move(known);
  }
  std::cout << "transcribing " << corpus.test.size() << " clips" << std::endl;
  auto before = whisper::transcribe_all(recognizer, corpus.test, options.corpus.workers, normalizer);
  whisper::save_transcripts(file, key, corpus.test, before);
  return before;
}

/// Adds the training clips that the loader could not read, and writes the list of all to left_out.txt, to
/// which a resumed run adds.
void tell_left_out(whisper::LeftOut& left_out, const lt::SkippedSamples& skipped, const fs::path& folder,
                   bool resumed) {
  const auto known = left_out.size();
  for (const auto& sample : skipped.first) left_out.add(sample.message);
  std::cerr << left_out.describe(known) << std::flush;
  const auto file = folder / "left_out.txt";
  if (resumed && fs::exists(file)) left_out.add_lines(lt::read_file(file));
  fs::remove(file);
  if (left_out.size() > 0) lt::write_file_atomically(file, left_out.list());
}

struct Outcome {
  const whisper::Normalizer& normalizer;
  const whisper::Transcripts &before, &after;
  std::int64_t steps;
  double seconds;
  std::int64_t peak_bytes;
  std::int64_t left_out;
};

void write_summary(const fs::path& file, const Outcome& outcome) {
  auto summary = lt::Json::object();
  summary.set("wer_before", outcome.before.word_error_rate).set("wer_after", outcome.after.word_error_rate);
  summary.set("normalizer", outcome.normalizer.name);
  summary.set("steps", outcome.steps).set("seconds", outcome.seconds);
  summary.set("peak_bytes", outcome.peak_bytes).set("clips_left_out", outcome.left_out);
  lt::write_file_atomically(file, summary.dump(2) + "\n");
}

void finetune(Options options) {
  const auto begin = std::chrono::steady_clock::now();
  torch::manual_seed(static_cast<std::uint64_t>(options.corpus.seed));
  options.corpus.check();
  options.corpus.on_bad_audio =
      options.on_bad_audio == "stop" ? whisper::OnBadAudio::stop : whisper::OnBadAudio::skip;
  const auto normalizer = whisper::choose_normalizer(options.normalizer, options.language);
  const auto device = whisper::choose_device(options.device);
  const auto newest = lt::choose_snapshot(options.resume, options.snapshots());
  if (!options.resume.empty()) std::cerr << newest.describe() << std::flush;
  auto recognizer = whisper::load_recognizer(options.model, device, options.language);
  auto corpus = whisper::load_corpus(options.corpus, recognizer, std::cerr);
  fs::create_directories(options.output);

  const bool resumed = !newest.path.empty();
  const auto before = transcribe_before(recognizer, corpus, options, normalizer, resumed);
  std::cout << "training on " << corpus.train.size() << " clips of up to " << corpus.max_seconds << " s"
            << std::endl;
  const auto result = train(recognizer, corpus, options, newest.path);
  tell_left_out(corpus.left_out, result.skipped_samples, options.output, resumed);
  if (result.status == lt::FitStatus::interrupted) throw whisper::Interrupted(result.reason, result.steps);
  fs::remove(options.output / "summary.json");  // a folder with a summary holds a finished model
  whisper::save_pretrained(recognizer.model, options.model, options.output);
  std::cout << "transcribing again" << std::endl;
  const auto after = whisper::transcribe_all(recognizer, corpus.test, options.corpus.workers, normalizer);

  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
  const Outcome outcome{normalizer,
                        before,
                        after,
                        result.steps,
                        elapsed.count(),
                        whisper::peak_bytes(device),
                        static_cast<std::int64_t>(corpus.left_out.size())};
  write_summary(options.output / "summary.json", outcome);
  whisper::print_side_by_side(std::cout, before, after, 3);
  std::cout << "word error rate " << before.word_error_rate << " before, " << after.word_error_rate
            << " after " << outcome.steps << " steps; " << outcome.seconds << " s in all\n"
            << "the model is in " << options.output.string() << std::endl;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  whisper::CommandLine line(
      "whisper_finetune",
      "Fine-tunes a Whisper model and measures its word error rate before and "
      "after.\nManifests are JSONL (audio_filepath, text, duration a line), CSV or TSV.");
  line.required("model", "DIR", options.model, "Hugging Face folder of the model to begin with");
  line.option("train", "FILE", options.corpus.train, "manifest of the training clips");
  line.option("validation", "FILE", options.corpus.validation,
              "manifest of the clips whose loss each epoch reports");
  line.option("test", "FILE", options.corpus.test,
              "manifest of the clips whose word error rate is measured; else validation");
  line.option(
      "transcripts", "PATH", options.corpus.transcripts,
      "instead of manifests: NAME.json of text, start, duration beside NAME.wav, or a folder of them; "
      "split 80/10/10");
  line.flag("strict", options.corpus.strict, true, "wrong lines stop; else they are listed and left out");
  line.choice(
      "on-bad-audio", options.on_bad_audio, {"skip", "stop"},
      "clips that are damaged, silent, too long, or whose text has no target: listed and left out, or "
      "the first one stops");
  line.required("output", "DIR", options.output, "folder for the fine-tuned model and summary.json");
  line.option("batch-size", "N", options.batch_size, "clips in one forward pass", {.min = 1, .max = 65536});
  line.option("gradient-accumulation", "N", options.gradient_accumulation, "batches in one step",
              {.min = 1, .max = 65536});
  line.option("epochs", "N", options.epochs, "passes over the training clips", {.min = 1});
  line.option("max-steps", "N", options.max_steps, "ends earlier, after so many steps; 0: does not",
              {.min = 0});
  line.option("learning-rate", "X", options.learning_rate, "of AdamW, after the warm-up", {.above = 0});
  line.option("warmup-steps", "N", options.warmup_steps, "steps from rate 0 to the full rate", {.min = 0});
  line.option("train-subset", "PERCENT", options.corpus.train_subset, "share of the training clips to use",
              {.max = 100, .above = 0});
  line.flag("bf16", options.bf16, true, "mixed precision; for GPUs from Ampere on and CPUs with AMX");
  line.flag("fp32", options.bf16, false, "single precision (default)");
  line.choice("gradient-checkpointing", options.recompute, {"none", "encoder", "all"},
              "layers that run a second time in backward instead of keeping their activations: less memory, "
              "same result, more time; without a value: all",
              "all");
  line.option("device", "NAME", options.device, "cpu, cuda, cuda:1, or auto: cuda if there is one");
  line.option("workers", "N", options.corpus.workers, "threads that read audio", {.min = 0, .max = 1024});
  line.option("seed", "N", options.corpus.seed, "order and choice of the training clips", {.min = 0});
  line.option("max-audio-seconds", "S", options.corpus.max_audio_seconds,
              "length that clips are padded to, at most 30; 0: that of the longest by the files' headers",
              {.min = 0, .max = 30});
  line.option("snapshot-every", "STEPS", options.snapshot_every,
              "writes the whole run to OUTPUT/snapshots so often, and when it is stopped; 0: never",
              {.min = 0});
  line.option(
      "resume", "auto|DIR", options.resume,
      "goes on from a snapshot or the newest in a folder; auto: in OUTPUT/snapshots, if there is one");
  line.option("language", "CODE", options.language, "what is spoken; English-only models ignore it");
  line.option("normalizer", "NAME", options.normalizer,
              "of the word error rate: english (Whisper's), marks (keeps combining marks), none, or auto: "
              "english for --language en");
  return whisper::run_main(argc, argv, line, [&] { finetune(options); });
}
