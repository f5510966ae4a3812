// SPDX-License-Identifier: MIT
// Fine-tunes Whisper on a manifest of audio and text, and says what that did to the word error rate. It shows
// a whole looptorch run: loader, objective, optimizer, policies, `fit`.
#include <looptorch/app/device.hpp>
#include <looptorch/app/memory_check.hpp>
#include <looptorch/app/ranks.hpp>
#include <looptorch/app/run_log.hpp>
#include <looptorch/app/run_main.hpp>
#include <looptorch/app/summary.hpp>
#include <looptorch/data/loader/pinned_prefetch_loader.hpp>
#include <looptorch/trainer.hpp>

#include "corpus.hpp"
#include "evaluation.hpp"
#include "finetune/options.hpp"
#include "finetune/report.hpp"
#include "finetune/run_settings.hpp"
#include "finetune/training_clips.hpp"
#include "finetune/validation.hpp"
#include "recognizer.hpp"

#include <cstdint>
#include <filesystem>
#include <iostream>
#include <string>
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
  const whisper::TrainingClips clips(corpus.train, corpus.windows, recognizer.tokenizer, recognizer.decoding,
                                     options.draws());
  const whisper::ValidationMeasure measure(recognizer, options.normalizer, options.measures_error_rate());

  // One policy a line.
  // clang-format off
  lt::Trainer trainer(model, optimizer, objective,
                      app::data_parallel(),
                      lt::Accumulate<>{training.gradient_accumulation},
                      lt::When{training.mixed_precision(), lt::MixedPrecision{.type = training.autocast_type()}},
                      lt::BackendFlags{.tf32 = training.tf32, .cudnn_benchmark = training.cudnn_benchmark},
                      lt::Checkpointed<whisper::EncoderLayer>{options.checkpoint(options.recompute != "none")},
                      lt::Checkpointed<whisper::DecoderLayer>{options.checkpoint(options.recompute == "all")},
                      lt::ClipGradNorm{1.0},
                      lt::ScheduleLr{.decay = lt::LinearDecay{}, .warmup_steps = training.warmup_steps},
                      lt::Validate{lt::PinnedPrefetchLoader(corpus.validation, loading, app::share_of_rank()), measure, {.every = options.validate_every}},
                      lt::When{options.early_stopping > 0, lt::StopEarly{.metric = options.metric(), .patience = options.early_stopping}},
                      lt::When{options.best != "last", lt::RestoreBest{.metric = options.metric()}},
                      whisper::WriteCurve(options.output, options.measures_error_rate()),
                      whisper::RunSettings(options.settings(corpus)),
                      lt::When{training.flush_every > 0, lt::CacheFlushEvery<>{.batches = training.flush_every}},
                      lt::When{training.takes_snapshots(), lt::SnapshotEvery{.folder = options.snapshots(),
                                                                             .steps = training.snapshot_every}},
                      lt::When{training.memory, lt::WatchMemory{}},
                      app::run_log(training, options.output, *model, {{"training clips", std::to_string(clips.size())}}),
                      lt::ShowProgress{});
  // clang-format on
  const auto longest = clips.longest();
  app::check_memory(training, trainer,
                    [&] { return whisper::hardest_batches(longest, training.batch_size); });
  const lt::RandomSampler order{.seed = training.unsigned_seed()};
  auto result = trainer.fit(lt::PinnedPrefetchLoader(clips, loading, app::share_of_rank(order)),
                            training.fit_options(snapshot));
  app::set_memory(summary, trainer.policy<lt::WatchMemory>());
  whisper::report_best(summary, options.metric(), trainer.policy<lt::RestoreBest>());
  return result;
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
  options.apply(recognizer);
  auto corpus = whisper::load_corpus(options.corpus_options(), recognizer, std::cerr);

  const bool resumed = !newest.path.empty();
  whisper::Transcripts before;
  if (app::leads()) {
    fs::create_directories(options.output);
    before = whisper::transcribe_before(recognizer, corpus, options, resumed);
    if (!resumed) whisper::WriteCurve::remove_from(options.output);
  }
  std::cout << "training on " << corpus.train.size() << " clips of up to " << corpus.max_seconds << " s"
            << std::endl;
  app::Summary summary;
  const auto result = train(recognizer, corpus, options, newest.path, summary);
  if (!app::leads()) return app::throw_if_interrupted(result);
  whisper::report_left_out(corpus.left_out, result.skipped_samples, options.output, resumed);
  app::throw_if_interrupted(result);
  fs::remove(options.output / "summary.json");  // a folder with a summary holds a finished model
  whisper::save_pretrained(recognizer.model, options.model, options.output,
                           whisper::dtype_of(options.save_dtype));
  if (options.changes_suppressed()) whisper::save_suppressed(options.output, recognizer.decoding);
  std::cout << "transcribing again" << std::endl;
  const auto after = whisper::transcribe_all(recognizer, corpus.test, training.workers);
  summary.set("peak_bytes", app::peak_bytes(device));
  summary.set("clips_left_out", std::int64_t(corpus.left_out.count()));
  whisper::report_result(summary, before, after, options, result, stopwatch.seconds());
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
