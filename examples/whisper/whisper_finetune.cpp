// SPDX-License-Identifier: MIT
// Fine-tunes Whisper on a manifest of audio and text, and says what that did to the word error rate. It shows
// a whole looptorch run: loader, objective, optimizer, policies, `fit`.
#include <looptorch/app/device.hpp>
#include <looptorch/app/memory_check.hpp>
#include <looptorch/app/run_main.hpp>
#include <looptorch/app/summary.hpp>
#include <looptorch/base/files/atomic_file.hpp>
#include <looptorch/base/files/file.hpp>
#include <looptorch/data/loader/pinned_prefetch_loader.hpp>
#include <looptorch/trainer.hpp>

#include "corpus.hpp"
#include "evaluation.hpp"
#include "finetune_options.hpp"
#include "recognizer.hpp"

#include <cstdint>
#include <filesystem>
#include <iostream>
#include <utility>

namespace {

namespace app = looptorch::app;
namespace fs = std::filesystem;
namespace lt = looptorch;
using whisper::Batch, whisper::Whisper;
using Options = whisper::FinetuneOptions;

lt::FitResult train(whisper::Recognizer& recognizer, const whisper::Corpus& corpus, const Options& options,
                    const fs::path& snapshot, app::Summary& summary) {
  auto& model = recognizer.model;
  const auto& training = options.training;
  lt::FusedAdamW optimizer(options.freeze_encoder ? model->freeze_encoder() : model->parameters(),
                           {.lr = training.learning_rate, .weight_decay = 0.0});
  auto objective = [](Whisper& model, const Batch& batch) {
    return lt::Loss{.value = model->loss(batch.mel_BMT, batch.tokens_BL, batch.labels_BL),
                    .weight = batch.label_count};
  };
  const auto loading = training.loader_options();

  // One policy a line.
  // clang-format off
  lt::Trainer trainer(model, optimizer, objective,
                      lt::Accumulate<>{training.gradient_accumulation},
                      lt::When{training.mixed_precision(), lt::MixedPrecision{.type = training.autocast_type()}},
                      lt::BackendFlags{.tf32 = training.tf32, .cudnn_benchmark = training.cudnn_benchmark},
                      lt::Checkpointed<whisper::EncoderLayer>{options.checkpoint(options.recompute != "none")},
                      lt::Checkpointed<whisper::DecoderLayer>{options.checkpoint(options.recompute == "all")},
                      lt::ClipGradNorm{1.0},
                      lt::ScheduleLr{.decay = lt::LinearDecay{}, .warmup_steps = training.warmup_steps},
                      lt::Validate{lt::PinnedPrefetchLoader(corpus.validation, loading)},
                      lt::When{training.flush_every > 0, lt::CacheFlushEvery<>{.batches = training.flush_every}},
                      lt::When{training.takes_snapshots(), lt::SnapshotEvery{.folder = options.snapshots(),
                                                                             .steps = training.snapshot_every}},
                      lt::When{training.memory, lt::WatchMemory{}},
                      lt::ShowProgress{});
  // clang-format on
  app::check_memory(training, trainer,
                    [&] { return whisper::hardest_batches(corpus.train, training.batch_size); });
  const lt::RandomSampler order{.seed = training.unsigned_seed()};
  auto result =
      trainer.fit(lt::PinnedPrefetchLoader(corpus.train, loading, order), training.fit_options(snapshot));
  app::set_memory(summary, trainer.policy<lt::WatchMemory>());
  return result;
}

/// What the model hears before it is trained. A run that goes on from a snapshot reads what was heard when it
/// began.
whisper::Transcripts transcribe_before(whisper::Recognizer& recognizer, const whisper::Corpus& corpus,
                                       const Options& options, bool resumed) {
  const auto file = options.output / "before.json";
  const whisper::TranscriptsKey key{options.model, options.language, corpus.test_seconds, options.fallback};
  if (resumed) {
    if (auto known = whisper::load_transcripts(file, key, corpus.test)) return *std::move(known);
  }
  std::cout << "transcribing " << corpus.test.size() << " clips" << std::endl;
  auto before = whisper::transcribe_all(recognizer, corpus.test, options.training.workers);
  whisper::save_transcripts(file, key, corpus.test, before);
  return before;
}

/// Adds the training clips that the loader could not read, prints them, and writes the list of all to
/// left_out.txt, to which a resumed run adds.
void report_left_out(whisper::LeftOut& left_out, const lt::SkippedSamples& skipped, const fs::path& folder,
                     bool resumed) {
  const auto known = left_out.count();
  left_out.add(skipped);
  std::cerr << left_out.describe({.from = known, .at_most = whisper::kListedClips}) << std::flush;
  const auto file = folder / "left_out.txt";
  if (resumed && fs::exists(file)) left_out.add_lines(lt::read_file(file));
  fs::remove(file);
  if (left_out.count() > 0) lt::write_file_atomically(file, left_out.list());
}

void finetune(const Options& options) {
  const app::Stopwatch stopwatch;
  const auto& training = options.training;
  const auto device = training.choose_device();
  training.seed_generators();
  options.check();
  const auto newest = training.snapshot_to_resume(options.snapshots());
  training.print_resume(newest);
  auto recognizer = whisper::load_recognizer(options.model, device, options.language);
  if (options.fallback) whisper::use_fallback(recognizer);
  auto corpus = whisper::load_corpus(options.corpus_options(), recognizer, std::cerr);
  fs::create_directories(options.output);

  const bool resumed = !newest.path.empty();
  const auto before = transcribe_before(recognizer, corpus, options, resumed);
  std::cout << "training on " << corpus.train.size() << " clips of up to " << corpus.max_seconds << " s"
            << std::endl;
  app::Summary summary;
  const auto result = train(recognizer, corpus, options, newest.path, summary);
  report_left_out(corpus.left_out, result.skipped_samples, options.output, resumed);
  app::throw_if_interrupted(result);
  fs::remove(options.output / "summary.json");  // a folder with a summary holds a finished model
  whisper::save_pretrained(recognizer.model, options.model, options.output,
                           whisper::dtype_of(options.save_dtype));
  std::cout << "transcribing again" << std::endl;
  const auto after = whisper::transcribe_all(recognizer, corpus.test, training.workers);

  const double seconds = stopwatch.seconds();
  const auto rates_before = before.error_rates(options.normalizer);
  const auto rates_after = after.error_rates(options.normalizer);
  whisper::set_error_rates(summary, "wer_before", rates_before);
  whisper::set_error_rates(summary, "wer_after", rates_after);
  summary.set("normalizer", after.normalizers(options.normalizer));
  summary.set("steps", result.steps).set("seconds", seconds);
  summary.set("peak_bytes", app::peak_bytes(device));
  summary.set("clips_left_out", std::int64_t(corpus.left_out.count()));
  summary.write(options.output / "summary.json");
  whisper::print_side_by_side(std::cout, before, after, 3);
  std::cout << "word error rate " << rates_before.all << " before, " << rates_after.all << " after "
            << result.steps << " steps; " << seconds << " s in all\n"
            << "the model is in " << options.output.string() << std::endl;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  app::CommandLine line("whisper_finetune",
                        "Fine-tunes a Whisper model and measures its word error rate before and after.\n"
                        "Manifests are JSONL (audio_filepath, text, duration a line), CSV or TSV.");
  whisper::add_flags(line, options);
  return app::run_main(argc, argv, line, [&] { finetune(options); });
}
