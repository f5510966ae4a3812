// SPDX-License-Identifier: MIT
// Fine-tunes Whisper on a manifest of audio and text, and says what that did to the word error rate. It shows
// a whole looptorch run: loader, objective, optimizer, policies, `fit`.
#include <looptorch/app/device.hpp>
#include <looptorch/app/earlier_summary.hpp>
#include <looptorch/app/fit.hpp>
#include <looptorch/app/memory_cap.hpp>
#include <looptorch/app/memory_check.hpp>
#include <looptorch/app/output_folder.hpp>
#include <looptorch/app/profile_policy.hpp>
#include <looptorch/app/ranks.hpp>
#include <looptorch/app/run_log.hpp>
#include <looptorch/app/run_main.hpp>
#include <looptorch/app/run_settings.hpp>
#include <looptorch/app/summary.hpp>
#include <looptorch/data/loader/pinned_prefetch_loader.hpp>
#include <looptorch/policies.hpp>
#include <looptorch/trainer.hpp>

#include "corpus.hpp"
#include "evaluation.hpp"
#include "finetune/fit.hpp"
#include "finetune/fit_trial.hpp"
#include "finetune/kept_fit.hpp"
#include "finetune/options.hpp"
#include "finetune/report.hpp"
#include "finetune/training_clips.hpp"
#include "finetune/validation.hpp"
#include "recognizer.hpp"

#include <cmath>
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

/// Makes the Trainer of a run, and calls `use(trainer, clips)`.
template <class Use>
void with_trainer(whisper::Recognizer& recognizer, const whisper::Corpus& corpus, const Options& options,
                  const Use& use) {
  auto& model = recognizer.model;
  const auto& training = options.training;
  const auto& memory = options.memory;
  const auto optimizer = memory.make_optimizer(model, training.learning_rate);
  auto objective = [](Whisper& model, const Batch& batch) {
    return lt::Loss{.value = whisper::loss_of(model, batch), .weight = batch.label_count};
  };
  const auto loading = training.loader_options();
  const whisper::TrainingClips clips(corpus.train, corpus.windows, recognizer.tokenizer, recognizer.decoding,
                                     options.draws());
  const whisper::ValidationMeasure measure(recognizer, options.normalizer, options.measures_error_rate());
  if (training.report && options.report_sound && app::leads()) measure.shown()->play(corpus.validation);

  // One policy a line.
  // clang-format off
  lt::Trainer trainer(model, *optimizer, objective,
                      lt::When{lt::rank_environment().size > 1, app::data_parallel()},
                      lt::Accumulate<>{training.gradient_accumulation},
                      lt::When{training.mixed_precision() && !memory.in_backward(), lt::MixedPrecision{.type = training.autocast_type()}},
                      lt::When{training.mixed_precision() && memory.in_backward(), lt::Autocast<lt::bf16>{}},
                      lt::BackendFlags{.tf32 = training.tf32, .cudnn_benchmark = training.cudnn_benchmark},
                      lt::When{!memory.cache_encoder, lt::Checkpointed<whisper::EncoderLayer>{options.checkpoint(options.recompute != "none")}},
                      lt::Checkpointed<whisper::DecoderLayer>{options.checkpoint(options.recompute == "all")},
                      training.autopsy_policy(options.output),
                      app::profile_policy(training, options.output),
                      lt::When{!memory.in_backward(), lt::ClipGradNorm{1.0}},
                      lt::When{memory.update_in_backward == "sums", lt::UpdateInBackwardWith<lt::SumsInBf16>{.max_norm = 1.0}},
                      lt::When{memory.update_in_backward == "moments", lt::UpdateInBackwardWith<lt::SumsInMoments>{}},
                      lt::ScheduleLr{.decay = lt::LinearDecay{}, .warmup_steps = training.warmup_steps},
                      lt::Validate{lt::PinnedPrefetchLoader(corpus.validation, loading, app::share_of_rank()), measure, {.every = options.validate_every}},
                      lt::When{options.early_stopping > 0, lt::StopEarly{.metric = options.metric(), .patience = options.early_stopping}},
                      lt::When{options.best != "last", lt::RestoreBest{.metric = options.metric()}},
                      whisper::WriteCurve(options.output, options.measures_error_rate(), measure.shown()),
                      app::RunSettings(options.settings(corpus, whisper::weights_identity(model)),
                                       {{"the validation list (--validation or --transcripts)", app::samples_of(corpus.validation)}}),
                      lt::When{training.flush_every > 0, lt::CacheFlushEvery<>{.batches = training.flush_every}},
                      lt::When{training.takes_snapshots(), lt::SnapshotEvery{.folder = options.snapshots(),
                                                                             .steps = training.snapshot_every}},
                      lt::When{training.memory, lt::WatchMemory{.remedies = app::beside_given(Options::memory_flags(), training).of_parts()}},
                      app::run_log(training, options.output, *model, {{"training clips", std::to_string(clips.size())}}),
                      lt::ShowProgress{});
  // clang-format on
  use(trainer, clips);
}

lt::FitResult train(whisper::Recognizer& recognizer, const whisper::Corpus& corpus, const Options& options,
                    const lt::NewestSnapshot& snapshot, app::Summary& summary) {
  const auto& training = options.training;
  lt::FitResult result;
  with_trainer(recognizer, corpus, options, [&](auto& trainer, const whisper::TrainingClips& clips) {
    const lt::RandomSampler order{.seed = training.unsigned_seed()};
    result = app::fit(trainer,
                      lt::PinnedPrefetchLoader(clips, training.loader_options(), app::share_of_rank(order)),
                      training, snapshot);
    app::set_memory(summary, trainer.template policy<lt::WatchMemory>());
    whisper::report_best(summary, options.metric(), trainer.template policy<lt::RestoreBest>());
  });
  return result;
}

/// Loads the model as a run of `options` holds it.
whisper::Recognizer load(const Options& options, at::Device device) {
  auto recognizer = whisper::load_recognizer(options.model, device, options.language, options.memory.dtype());
  options.apply(recognizer);
  options.memory.apply(recognizer.model);
  return recognizer;
}

/// Loads a model of which tokenizer and settings are needed alone.
whisper::Recognizer load_settings(const Options& options) {
  auto recognizer = whisper::load_recognizer(options.model, at::kCPU, options.language, at::kBFloat16);
  options.apply(recognizer);
  return recognizer;
}

/// Returns a function that makes dry steps of a run with other options, as measure_run does.
auto dry_runs(const whisper::Corpus& corpus, at::Device device, std::int64_t cap, double margin,
              bool whole_program) {
  return [&corpus, device, cap, margin, whole_program](const Options& options) {
    whisper::FitTrial trial{.needed = cap, .fits = false, .by_batch = false, .ran_out = true};
    try {
      auto recognizer = load(options, device);
      with_trainer(recognizer, corpus, options, [&](auto& trainer, const whisper::TrainingClips& clips) {
        const auto longest = clips.longest();
        trial = whisper::measure_run(trainer, recognizer, options, longest, cap, margin, whole_program);
      });
    } catch (const c10::OutOfMemoryError&) {  // of the weights alone
    }
    return trial;
  };
}

/// Writes a line on memory. With --preflight: throws app::DoesNotFit for a run that does not fit, and names
/// the first choice of --fit that does, for a `resumed` run of those that it can go on with. It tries them
/// without the model, which is then no longer held.
void check_memory(whisper::Recognizer& recognizer, const whisper::Corpus& corpus, const Options& options,
                  at::Device device, bool resumed) {
  const auto& training = options.training;
  lt::PreflightReport report{.fits = true};
  with_trainer(recognizer, corpus, options, [&](auto& trainer, const whisper::TrainingClips& clips) {
    app::print_memory(trainer);
    if (!training.preflight) return;
    const auto longest = clips.longest();
    report = app::run_preflight(training, trainer, whisper::hardest_batches(longest, training.batch_size),
                                {.try_remedies = false});
  });
  if (report.fits) return;
  recognizer.model = nullptr;
  const auto choice = whisper::choose_fit(
      options, report.cap, dry_runs(corpus, device, report.cap, report.margin, /*whole_program=*/false),
      std::cerr, {.asking = "preflight:", .margin = report.margin, .resumed = resumed});
  app::throw_does_not_fit(report.cap, choice.flags);
}

/// Returns what the run of `snapshot` began with, if it was begun by --fit; else chooses by dry steps.
whisper::FitChoice fitted(const Options& given, const fs::path& snapshot, const whisper::Corpus& corpus,
                          at::Device device) {
  const auto cap = whisper::parse_bytes(given.memory.fit);
  if (!snapshot.empty())
    if (auto kept = whisper::kept_fit(snapshot, given, cap, std::cerr)) return *std::move(kept);
  const double margin = whisper::detail::fit_margin(device);
  std::cerr << "--fit " << app::bytes_text(cap) << ": " << std::lround(100 * margin)
            << " % of it is to stay free" << std::endl;
  return whisper::choose_fit(given, cap, dry_runs(corpus, device, cap, margin, /*whole_program=*/true),
                             std::cerr, {.margin = margin, .resumed = !snapshot.empty()});
}

void finetune(Options options) {
  const app::Stopwatch stopwatch;
  const auto& training = options.training;
  const auto device = training.choose_device();
  training.seed_generators();
  options.check();
  const auto newest = training.snapshot_to_resume(options.snapshots());
  training.print_resume(newest);
  const auto& fit = options.memory.fit;
  if (!fit.empty() && lt::rank_environment().size > 1)
    throw app::CommandLineError("--fit chooses for one process: give the flags that it names to all of them");
  const auto size = fit.empty() ? 0 : whisper::parse_bytes(fit);
  auto recognizer = fit.empty() ? load(options, device) : load_settings(options);
  whisper::tell_renamed(recognizer, options.model, std::cerr);
  auto corpus = whisper::load_corpus(options.corpus_options(), recognizer, std::cerr);
  const app::OutputFolder folder(options.output);
  if (!fit.empty()) {
    newest.release();  // dry steps need the memory
    recognizer.model = nullptr;
    app::set_memory_cap(device, size);
    auto choice = fitted(options, newest.path, corpus, device);
    whisper::keep_fit(options.output, choice);
    options = std::move(choice.options);
    training.seed_generators();  // as without dry steps before
    recognizer = load(options, device);
  }
  if (options.memory.cache_encoder)
    corpus.encode_by(options.encoder_of(recognizer), whisper::ClipEncoder(recognizer.model),
                     options.corpus_options());

  const bool resumed = !newest.path.empty();
  check_memory(recognizer, corpus, options, device, resumed);

  whisper::Transcripts before;
  if (app::leads()) {
    before = whisper::transcribe_before(recognizer, corpus, options, resumed);
    if (!resumed) whisper::WriteCurve::remove_from(options.output);
    if (!resumed && fit.empty()) whisper::forget_fit(options.output);
  }
  std::cout << "training on " << corpus.train.size() << " clips of up to " << corpus.max_seconds << " s"
            << std::endl;
  app::Summary summary;
  const auto result = train(recognizer, corpus, options, newest, summary);
  if (!app::leads()) return app::throw_if_interrupted(result);
  whisper::report_left_out(corpus, result.skipped_samples, options.output, resumed);
  app::throw_if_interrupted(result);
  const app::EarlierSummary earlier(options.output / "summary.json");  // removes it
  whisper::save_trained(recognizer.model, options);
  if (options.changes_suppressed()) whisper::save_suppressed(options.output, recognizer.decoding);
  std::cout << "transcribing again" << std::endl;
  const auto after =
      whisper::transcribe_all(recognizer, corpus.test, training.workers, options.clips_heard());
  const double seconds = stopwatch.seconds();
  summary.set("seconds", seconds).set("peak_bytes", app::peak_bytes(device));
  earlier.keep_costs(summary, result);
  summary.set("clips_left_out", std::int64_t(corpus.left_out.count()));
  whisper::report_result(summary, before, after, options, result, seconds);
}

/// The same, held to --fit. Throws app::DoesNotFit if the run passes it after all.
void finetune_within(const Options& options) try {
  finetune(options);
} catch (const c10::OutOfMemoryError& error) {
  if (options.memory.fit.empty()) throw;
  throw app::DoesNotFit(
      lt::message("--fit ", options.memory.fit, ": the run needed more than its dry steps (",
                  error.what_without_backtrace(), "): give more, or the flags that it named"));
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  app::CommandLine line("whisper_finetune",
                        "Fine-tunes a Whisper model and measures its word error rate before and after.\n"
                        "Manifests are JSONL (audio_filepath, text, duration a line), CSV or TSV.");
  whisper::add_flags(line, options);
  return app::run_main(argc, argv, line, [&] { finetune_within(options); });
}
