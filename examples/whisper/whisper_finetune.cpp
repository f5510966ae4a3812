// SPDX-License-Identifier: MIT
// Fine-tunes Whisper on a manifest of audio and text, and prints the word error rate before and after. It
// shows a whole looptorch run: loader, objective, optimizer, policies, `fit`.
#include <looptorch/app/run_main.hpp>
#include <looptorch/app/session.hpp>
#include <looptorch/policies.hpp>
#include <looptorch/trainer.hpp>

#include "clips/corpus.hpp"
#include "decoding/recognizer.hpp"
#include "model/adapters.hpp"
#include "training/evaluation.hpp"
#include "training/flags.hpp"
#include "training/load_model.hpp"
#include "training/objective.hpp"
#include "training/options.hpp"
#include "training/plan/fit_memory.hpp"
#include "training/plan/memory_plan.hpp"
#include "training/plan/memory_size.hpp"
#include "training/plan/saved_plan.hpp"
#include "training/report.hpp"
#include "training/training_clips.hpp"
#include "training/validation.hpp"

#include <cstdint>
#include <iostream>
#include <optional>
#include <string>
#include <utility>

namespace {

namespace app = looptorch::app;
namespace lt = looptorch;
using whisper::Batch, whisper::Whisper;
using Options = whisper::FinetuneOptions;

/// Returns the policies that the flags of precision and memory ask for.
auto memory_policies(const Options& options) {
  const auto& memory = options.memory;
  const auto& training = options.training;
  const bool half = training.mixed_precision(), in_backward = memory.in_backward();
  return lt::Policies{
      lt::When{half && !in_backward,
               lt::Autocast<>{.type = training.autocast_type(), .keep_casts = options.recompute != "all"}},
      lt::When{half && in_backward, lt::Autocast<lt::bf16>{}},
      lt::When{!memory.cache_encoder,
               lt::Checkpointed<whisper::EncoderLayer>{options.checkpoint(options.recompute != "none")}},
      lt::Checkpointed<whisper::DecoderLayer>{options.checkpoint(options.recompute == "all")},
      lt::When{!in_backward, lt::ClipGradNorm{1.0}},
      lt::When{memory.update_in_backward == "sums", lt::UpdateInBackward<lt::SumsInBf16>{.max_norm = 1.0}},
      lt::When{memory.update_in_backward == "moments", lt::UpdateInBackward<lt::SumsInMoments>{}}};
}

/// The loss of a batch's labels. It depends only on the batch's tensors, except for its weight.
struct LabelLoss {
  lt::Loss operator()(Whisper& model, const Batch& batch) const {
    return {.value = whisper::loss_of(model, batch), .weight = weight(batch)};
  }
  double weight(const Batch& batch) const { return static_cast<double>(batch.label_count); }
};

/// Makes the Trainer of a run, and calls `use(trainer, clips)`.
constexpr auto with_trainer = [](whisper::Recognizer& recognizer, const whisper::Corpus& corpus,
                                 const Options& options, const auto& use) {
  auto& model = recognizer.model;
  const auto& training = options.training;
  const auto optimizer = options.memory.make_optimizer(model, training.learning_rate);
  const auto clips = options.clips_of(corpus, recognizer);
  const whisper::ValidationMeasure measure(recognizer, options.normalizer, options.measures_error_rate());
  if (training.report && options.report_sound && app::leads()) measure.shown()->play(corpus.validation);
  const app::RunDetails details{
      .settings = options.settings(corpus, whisper::weights_identity(model)),
      .data = {{"the validation list (--validation or --transcripts)", app::samples_of(corpus.validation)},
               {"the training text in tokens", corpus.train.targets_identity()}},
      .facts = {{"training clips", std::to_string(clips.size())}},
      .memory_flags = Options::memory_flags()};
  lt::PinnedPrefetchLoader validation(corpus.validation, training.loader_options(), app::shard_of_rank());

  lt::Trainer trainer(
      model, *optimizer, LabelLoss{}, memory_policies(options),
      lt::ScheduleLr{.decay = lt::LinearDecay{}, .warmup_steps = training.warmup_steps},
      lt::Validate{std::move(validation), measure, {.every = options.validate_every, .at_end = true}},
      lt::When{options.early_stopping > 0,
               lt::StopEarly{.metric = options.metric(), .patience = options.early_stopping}},
      lt::When{options.best != "last", lt::RestoreBest{.metric = options.metric()}},
      whisper::WriteCurve(options.output, options.measures_error_rate(), measure.shown()),
      app::run_policies(training, options.output, *model, details).without<lt::Autocast<>>());
  use(trainer, clips);
};

lt::FitResult train(app::Session& session, whisper::Recognizer& recognizer, whisper::Corpus& corpus,
                    const Options& options) try {
  lt::FitResult result;
  with_trainer(recognizer, corpus, options, [&](auto& trainer, const whisper::TrainingClips& clips) {
    result = session.fit(trainer, session.shuffled(clips), [&](const lt::FitResult& fit) {
      whisper::report_best(session.summary(), options.metric(), trainer.template policy<lt::RestoreBest>());
      if (app::leads())
        whisper::report_skipped(corpus, fit.skipped_samples, options.output, session.resumes());
    });
  });
  return result;
} catch (const lt::SnapshotMismatch& error) {
  const bool fits = !options.memory.fit.empty();
  const auto remedy = fits ? std::string() : whisper::plan_remedy(session.snapshot().path);
  if (remedy.empty()) throw;
  throw lt::SnapshotMismatch(error.what() + remedy, error.differences, error.settings_only);
}

/// Throws CommandLineError for flags that contradict each other, and for a folder that cannot take the
/// result.
void check(const Options& options) {
  options.check();
  const std::string& fit = options.memory.fit;
  if (!fit.empty() && lt::rank_environment().size > 1)
    throw app::CommandLineError("--fit chooses for one process: give the flags that it names to all of them");
  if (!fit.empty() && fit != whisper::kFitFree) (void)whisper::parse_bytes(fit);
  whisper::require_other_folder(options.output, options.model);
  if (options.memory.lora > 0) whisper::require_room_for_adapters(options.output);
}

/// Makes the choices of --fit, encodes clips for --cache-encoder, and prints what the run will hold.
void plan_memory(app::Session& session, whisper::Recognizer& recognizer, whisper::Corpus& corpus,
                 Options& options) {
  if (!options.memory.fit.empty()) {
    whisper::fit_to_memory(with_trainer, session, corpus, recognizer, options);
    recognizer = whisper::load_model(options, session.device());
  }
  if (options.memory.cache_encoder)
    corpus.encode_by(options.encoder_of(recognizer), whisper::ClipEncoder(recognizer.model),
                     options.corpus_options());
  whisper::check_memory(with_trainer, recognizer, corpus, options, session.device(), session.resumes());
}

/// Transcribes the test clips before training, on rank 0. A run that begins anew removes an earlier run's
/// files.
whisper::Transcripts transcribe_untrained(const app::Session& session, whisper::Recognizer& recognizer,
                                          whisper::Corpus& corpus, const Options& options) {
  if (!app::leads()) return {};
  const bool is_new = session.begins_anew();
  auto before = whisper::transcribe_before(recognizer, corpus, options, !is_new);
  if (is_new) whisper::WriteCurve::remove_from(options.output);
  if (is_new && options.memory.fit.empty()) whisper::forget_plan(options.output);
  return before;
}

/// Saves the model, transcribes again and writes the summary.
void finish(app::Session& session, whisper::Recognizer& recognizer, const whisper::Corpus& corpus,
            const Options& options, const lt::FitResult& result, whisper::Transcripts before) {
  std::optional<whisper::Comparison> comparison;
  session.finish([&](app::Summary& summary) {
    whisper::save_trained(recognizer.model, options);
    if (options.changes_suppressed()) whisper::save_suppressed(options.output, recognizer.decoding);
    std::cout << "transcribing again" << std::endl;
    comparison.emplace(
        std::move(before),
        whisper::transcribe_all(recognizer, corpus.test, options.training.workers, options.clips_at_once()),
        options.normalizer);
    summary.set("clips_skipped", std::int64_t(corpus.skipped.count()));
    whisper::set_result(summary, *comparison, options, result);
  });
  whisper::print_result(*comparison, options, result, session.seconds());
}

void finetune(Options options) {
  check(options);
  app::Session session(options.training, options.output);
  options.has_bf16 = app::why_no_bf16(session.device()).empty();
  auto recognizer = options.memory.fit.empty() ? whisper::load_model(options, session.device())
                                               : whisper::load_sizes(options);
  whisper::tell_renamed(recognizer, options.model, std::cerr);
  auto corpus = whisper::load_corpus(options.corpus_options(), recognizer, std::cerr);
  plan_memory(session, recognizer, corpus, options);
  auto before = transcribe_untrained(session, recognizer, corpus, options);
  std::cout << "training on " << corpus.train.size() << " clips of up to " << corpus.max_seconds << " s"
            << std::endl;
  const auto result = train(session, recognizer, corpus, options);
  if (app::leads()) finish(session, recognizer, corpus, options, result, std::move(before));
}

/// Fine-tunes. With --fit, throws app::DoesNotFit if the run needs more memory than its limit.
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
