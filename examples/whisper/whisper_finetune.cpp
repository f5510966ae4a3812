// SPDX-License-Identifier: MIT
// Fine-tunes Whisper on a manifest of audio and text, and prints the word error rate before and after. It
// shows a whole looptorch run: loader, objective, optimizer, policies, `fit`.
#include <looptorch/app/memory_cap.hpp>
#include <looptorch/app/run_main.hpp>
#include <looptorch/app/session.hpp>
#include <looptorch/policies.hpp>
#include <looptorch/shapes_only/shapes_only.hpp>
#include <looptorch/trainer.hpp>

#include "clips/corpus.hpp"
#include "decoding/recognizer.hpp"
#include "model/adapters.hpp"
#include "training/evaluation.hpp"
#include "training/memory_plan.hpp"
#include "training/options.hpp"
#include "training/plan_trial.hpp"
#include "training/report.hpp"
#include "training/saved_plan.hpp"
#include "training/training_clips.hpp"
#include "training/validation.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace {

namespace app = looptorch::app;
namespace fs = std::filesystem;
namespace lt = looptorch;
using whisper::Batch, whisper::Whisper;
using Options = whisper::FinetuneOptions;

/// Returns the policies of the flags for precision and memory.
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

whisper::TrainingClips training_clips(const whisper::Corpus& corpus, const whisper::Recognizer& recognizer,
                                      const Options& options) {
  return {corpus.train, corpus.windows, recognizer.tokenizer, recognizer.decoding, options.draws()};
}

/// Makes the Trainer of a run, and calls `use(trainer, clips)`.
template <class Use>
void with_trainer(whisper::Recognizer& recognizer, const whisper::Corpus& corpus, const Options& options,
                  const Use& use) {
  auto& model = recognizer.model;
  const auto& training = options.training;
  const auto optimizer = options.memory.make_optimizer(model, training.learning_rate);
  const auto clips = training_clips(corpus, recognizer, options);
  const whisper::ValidationMeasure measure(recognizer, options.normalizer, options.measures_error_rate());
  if (training.report && options.report_sound && app::leads()) measure.shown()->play(corpus.validation);
  const app::RunDetails details{
      .settings = options.settings(corpus, whisper::weights_identity(model)),
      .data = {{"the validation list (--validation or --transcripts)", app::samples_of(corpus.validation)}},
      .facts = {{"training clips", std::to_string(clips.size())}},
      .memory_flags = Options::memory_flags()};
  lt::PinnedPrefetchLoader validation(corpus.validation, training.loader_options(), app::share_of_rank());

  lt::Trainer trainer(model, *optimizer, LabelLoss{}, memory_policies(options),
                      lt::ScheduleLr{.decay = lt::LinearDecay{}, .warmup_steps = training.warmup_steps},
                      lt::Validate{std::move(validation), measure, {.every = options.validate_every}},
                      lt::When{options.early_stopping > 0,
                               lt::StopEarly{.metric = options.metric(), .patience = options.early_stopping}},
                      lt::When{options.best != "last", lt::RestoreBest{.metric = options.metric()}},
                      whisper::WriteCurve(options.output, options.measures_error_rate(), measure.shown()),
                      app::run_policies(training, options.output, *model, details).without<lt::Autocast<>>());
  use(trainer, clips);
}

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

/// Loads the model as a run of `options` holds it: never with wider weights than the run's on a device.
whisper::Recognizer load(const Options& options, at::Device device) {
  auto recognizer =
      whisper::load_recognizer(options.model, at::kCPU, options.language, options.memory.dtype());
  options.apply(recognizer);
  options.memory.apply(recognizer.model);
  recognizer.model->to(device);
  return recognizer;
}

/// Loads a model for its tokenizer, settings and sizes only.
whisper::Recognizer load_settings(const Options& options) {
  const lt::ShapesOnly shapes_only;
  auto recognizer = whisper::load_recognizer(options.model, at::kCPU, options.language, at::kBFloat16);
  options.apply(recognizer);
  return recognizer;
}

/// Measures what runs with other options need of a device.
class PlanTrials {
 public:
  /// Uses the sizes of `settings`' model, not its weights.
  PlanTrials(const whisper::Corpus& corpus, const whisper::Recognizer& settings, whisper::PlanRoom room,
             bool whole_program)
      : corpus_(corpus),
        settings_(settings),
        config_(settings.model->config()),
        room_(room),
        whole_program_(whole_program) {
    settings_.model = nullptr;
  }

  /// Predicts by shapes, without the model's weights.
  whisper::PlanTrial predict(const Options& options) {
    const auto& hardest = hardest_batches(options);
    const app::HostCapLifted lifted;
    whisper::PlanTrial trial;
    {
      const lt::ShapesOnly shapes_only(room_.device.is_cpu() ? lt::ShapesOf::cpu : lt::ShapesOf::accelerator);
      auto recognizer = settings_;
      recognizer.model = whisper::detail::make_model(config_, options.memory.dtype());
      options.memory.apply(recognizer.model);
      trial = measure(recognizer, options, hardest, whisper::PlanBy::shapes);
    }
    if (whole_program_) whisper::add_loading(trial, longest_clips(options), options, room_);
    return trial;
  }

  /// Runs windows of the run itself on its device.
  whisper::PlanTrial prove(const Options& options) {
    return whisper::with_refusals(room_, [&] {
      auto recognizer = load(options, room_.device);
      return measure(recognizer, options, hardest_batches(options), whisper::PlanBy::steps);
    });
  }

  /// Returns the first choice of --fit that fits. On a CPU a prediction is exact, and a window takes as long
  /// as one of training, so none is run.
  whisper::PlanChoice choose(const Options& given, const whisper::PlanQuestion& question) {
    whisper::PlanMeasure proof;
    if (!room_.device.is_cpu()) proof = [this](const Options& options) { return prove(options); };
    return whisper::choose_plan(
        given, room_.cap, [this](const Options& options) { return predict(options); }, std::cerr, question,
        proof);
  }

 private:
  whisper::PlanTrial measure(whisper::Recognizer& recognizer, const Options& options,
                             const std::vector<Batch>& hardest, whisper::PlanBy by) {
    whisper::PlanTrial trial;
    with_trainer(recognizer, corpus_, options, [&](auto& trainer, const whisper::TrainingClips&) {
      trial = whisper::measure_run(trainer, recognizer, options, hardest, room_, by, whole_program_);
    });
    return trial;
  }
  [[nodiscard]] whisper::TrainingClips longest_clips(const Options& options) const {
    return training_clips(corpus_, settings_, options).longest();
  }
  /// Reads the hardest batches, once for each number of clips.
  const std::vector<Batch>& hardest_batches(const Options& options) {
    const auto size = options.training.batch_size;
    const auto [found, is_new] = hardest_.try_emplace(size);
    if (is_new) {
      const auto clips = longest_clips(options);
      found->second = whisper::hardest_batches(clips, size).of_at_most(size);
    }
    return found->second;
  }

  const whisper::Corpus& corpus_;
  whisper::Recognizer settings_;
  whisper::WhisperConfig config_;
  whisper::PlanRoom room_;
  bool whole_program_;
  std::map<std::int64_t, std::vector<Batch>> hardest_;
};

/// Writes a line on memory. With --preflight: throws app::DoesNotFit for a run that does not fit, and names
/// the first choice of --fit that does, for a `resumed` run of those it can resume with. It tries them
/// without the model, which is then released.
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
  PlanTrials trials(corpus, recognizer, {.device = device, .cap = report.cap, .margin = report.margin},
                    /*whole_program=*/false);
  recognizer.model = nullptr;
  const auto choice =
      trials.choose(options, {.asking = "preflight:", .margin = report.margin, .resumed = resumed});
  app::throw_does_not_fit(report.cap, choice.flags);
}

/// Returns the choice that the run of `snapshot` began with, if it used --fit; else chooses.
whisper::PlanChoice fitted(const Options& given, const fs::path& snapshot, const whisper::Corpus& corpus,
                           whisper::Recognizer& settings, const whisper::PlanRoom& room) {
  if (!snapshot.empty())
    if (auto kept = whisper::saved_plan(snapshot, given, room.cap, std::cerr)) return *std::move(kept);
  std::cerr << room.words() << std::endl;
  PlanTrials trials(corpus, settings, room, /*whole_program=*/true);
  settings.model = nullptr;  // it would count, as the run's will not
  return trials.choose(given, {.margin = room.margin, .resumed = !snapshot.empty()});
}

/// Sets the choice of --fit in `options`, and limits the device to its size.
void choose_plan(const app::Session& session, const whisper::Corpus& corpus, whisper::Recognizer& settings,
                 Options& options) {
  session.snapshot().release();  // dry steps need the memory
  const auto room = whisper::plan_room(options.memory.fit, session.device());
  app::set_memory_cap(session.device(), std::max<std::int64_t>(room.tensors(), 1));
  auto choice = fitted(options, session.snapshot().path, corpus, settings, room);
  if (choice.options.memory.lora > 0) whisper::require_room_for_adapters(options.output, options.model);
  whisper::save_plan(options.output, choice);
  options = std::move(choice.options);
  session.seed();  // as without dry steps before
}

void finetune(Options options) {
  options.check();
  const bool fits = !options.memory.fit.empty();
  if (fits && lt::rank_environment().size > 1)
    throw app::CommandLineError("--fit chooses for one process: give the flags that it names to all of them");
  if (fits && options.memory.fit != whisper::kFitFree) (void)whisper::parse_bytes(options.memory.fit);
  if (options.memory.lora > 0) whisper::require_room_for_adapters(options.output, options.model);
  app::Session session(options.training, options.output);
  options.has_bf16 = app::why_no_bf16(session.device()).empty();
  auto recognizer = fits ? load_settings(options) : load(options, session.device());
  whisper::tell_renamed(recognizer, options.model, std::cerr);
  auto corpus = whisper::load_corpus(options.corpus_options(), recognizer, std::cerr);
  if (fits) {
    choose_plan(session, corpus, recognizer, options);
    recognizer = load(options, session.device());
  }
  if (options.memory.cache_encoder)
    corpus.encode_by(options.encoder_of(recognizer), whisper::ClipEncoder(recognizer.model),
                     options.corpus_options());
  check_memory(recognizer, corpus, options, session.device(), session.resumes());
  whisper::Transcripts before;
  if (app::leads()) {
    before = whisper::transcribe_before(recognizer, corpus, options, session.resumes());
    if (!session.resumes()) whisper::WriteCurve::remove_from(options.output);
    if (!session.resumes() && !fits) whisper::forget_plan(options.output);
  }
  std::cout << "training on " << corpus.train.size() << " clips of up to " << corpus.max_seconds << " s"
            << std::endl;
  const auto result = train(session, recognizer, corpus, options);
  if (!app::leads()) return;
  std::optional<whisper::Comparison> heard;
  session.finish([&](app::Summary& summary) {
    whisper::save_trained(recognizer.model, options);
    if (options.changes_suppressed()) whisper::save_suppressed(options.output, recognizer.decoding);
    std::cout << "transcribing again" << std::endl;
    heard.emplace(
        std::move(before),
        whisper::transcribe_all(recognizer, corpus.test, options.training.workers, options.clips_heard()),
        options.normalizer);
    summary.set("clips_skipped", std::int64_t(corpus.skipped.count()));
    whisper::set_result(summary, *heard, options, result);
  });
  whisper::print_result(*heard, options, result, session.seconds());
}

/// The same within the limit of --fit. Throws app::DoesNotFit if the run exceeds it after all.
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
