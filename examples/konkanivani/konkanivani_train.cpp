// SPDX-License-Identifier: MIT
// Trains a Konkani speech recogniser from scratch on a folder of manifests, and prints the test set's
// character and word error rates. It shows a whole looptorch run: sampler, loader, objective, policies,
// `fit`.
#include <looptorch/app/run_main.hpp>
#include <looptorch/app/session.hpp>
#include <looptorch/policies.hpp>
#include <looptorch/trainer.hpp>

#include "clips/corpus_layout.hpp"
#include "clips/skipped_items.hpp"
#include "training/evaluation.hpp"
#include "training/first_weights.hpp"
#include "training/objective.hpp"
#include "training/resume.hpp"
#include "training/script_flags.hpp"
#include "training/train_options.hpp"
#include "training/training_data.hpp"
#include "training/validation.hpp"

#include <cstdint>
#include <filesystem>
#include <iostream>
#include <string>
#include <utility>

namespace {

namespace app = looptorch::app;
namespace fs = std::filesystem;
namespace kv = konkanivani;
namespace lt = looptorch;
using kv::KonkaniVani;
using Options = kv::TrainOptions;

/// Trains from the session's snapshot, or anew, and leaves the best weights in the model.
lt::FitResult train(app::Session& session, kv::Recognizer& recognizer, const kv::TrainingData& data,
                    const Options& options, kv::SkippedItems* skipped) {
  auto& model = recognizer.model;
  const auto& training = options.training;
  lt::FusedAdamW optimizer(model->parameters(), {.lr = training.learning_rate, .weight_decay = 1e-6});
  const kv::JointLoss objective{options.loss()};
  const auto loading = options.loading();
  lt::PinnedPrefetchLoader clips(
      data.train, loading,
      app::share_of_rank(data.train.by_length(options.batch(), loading.seed, options.shortest_first_epochs)));
  lt::PinnedPrefetchLoader validation_clips(data.validation, loading,
                                            app::share_of_rank(data.validation.by_length(options.batch())));
  kv::Validation validation(recognizer, data.validation, options);
  const auto report = [&](lt::EpochContext& epoch) { validation.report(epoch); };
  lt::ScheduleLr schedule{.decay = lt::LinearDecay{}, .warmup_steps = training.warmup_steps};
  if (options.schedule == "plateau") schedule.decay = lt::PlateauDecay{.factor = 0.5, .patience = 3};
  const kv::HardestBatches hardest(data.train, options.batch(), loading.seed, session.resumes());
  const app::RunDetails details{.settings = options.settings(),
                                .data = {{"the validation list of --data", app::samples_of(data.validation)}},
                                .facts = {{"training clips", std::to_string(data.train.size())}},
                                .memory_flags = hardest.flags(),
                                .ranks = {.batch_statistics_per_rank = true}};

  lt::Trainer trainer(
      model, optimizer, objective,
      lt::When{training.gradient_checkpointing, lt::Checkpointed<kv::ConformerBlock>{}},
      lt::ClipGradNorm{5.0}, schedule, lt::Validate{validation_clips, validation.measure()},
      lt::On{lt::kObserve, report}, lt::RestoreBest{.metric = "validation.cer"},
      lt::SnapshotEvery{
          .folder = options.snapshots(), .steps = training.snapshot_every, .best = "validation.cer"},
      session.policies(*model, details).without<lt::SnapshotEvery>());
  app::check_memory(
      training, trainer, [&] { return hardest; }, hardest.flags());
  const auto identify = [&] {
    if (app::leads()) kv::save_identity(model->config(), recognizer.vocabulary, options.snapshots());
  };
  // A resumed run may still be refused, and its snapshots' folder has an identity.
  if (!kv::lies_in(options.snapshots(), session.snapshot().path)) identify();
  return session.fit(trainer, clips, [&](const lt::FitResult& fit) {
    if (session.resumes()) identify();
    if (skipped) skipped->add(fit.skipped_samples), skipped->add(validation_clips.skipped());
  });
}

/// Prints the settings, and why: `script_flag` selected those of the Python script.
void print_preset(const Options& options, const std::string& script_flag) {
  const auto& training = options.training;
  const bool is_original = options.preset == "original";
  std::cerr << "preset " << options.preset;
  if (!script_flag.empty())
    std::cerr << ", since " << script_flag << " is a flag of train_konkanivani_asr.py";
  std::cerr << ": learning rate " << training.learning_rate << ", " << training.epochs
            << " epochs, frames of " << options.subsampling * 10 << " ms; "
            << (is_original ? "--preset measured has what was measured on a CPU"
                            : "--preset original has that of the project that this follows")
            << std::endl;
}

void run(const Options& options, const std::string& script_flag) {
  options.check();
  const auto& training = options.training;
  app::Session session(training, options.output);
  kv::SkippedItems listed;
  const app::PrintAtEnd print_at_end(listed);
  auto* const skipped = training.skips_bad_audio() ? &listed : nullptr;
  auto corpus = kv::load_corpus(options.data, skipped);
  auto vocabulary = kv::vocabulary_of(corpus.train, options);
  for (auto* part : {&corpus.train, &corpus.validation, &corpus.test}) training.keep_few(*part);
  const auto config = options.model(vocabulary.size());
  kv::check_config(config, "the model's sizes");
  if (session.resumes()) kv::require_same_run(config, vocabulary, session.snapshot().path);
  KonkaniVani model(config);
  kv::begin_from_weights(model, options.weights, vocabulary, session.resumes());
  if (app::leads()) kv::begin_in(options.output, config, session.snapshot().path);
  const auto data = kv::load_training_data(std::move(corpus), vocabulary, options, skipped);
  kv::Recognizer recognizer{std::move(model), std::move(vocabulary)};
  recognizer.model->to(session.device());

  if (app::leads()) print_preset(options, script_flag);
  std::cout << kv::count_parameters(*recognizer.model) << " parameters, " << recognizer.vocabulary.size()
            << " characters, " << data.train.size() << " training clips" << std::endl;
  const auto test = [&] {
    return kv::transcribe_all(recognizer, data.test, options.batch(), {.workers = training.workers},
                              options.decoding(), skipped);
  };
  const auto untrained = app::leads() ? test() : kv::Transcripts();
  const auto result = train(session, recognizer, data, options, skipped);
  if (!app::leads()) return;
  const auto heard = test();
  session.finish([&](app::Summary& summary) {
    kv::save_recognizer(recognizer, options.output);
    summary.set("cer", heard.character_error_rate).set("wer", heard.word_error_rate);
    summary.set("cer_untrained", untrained.character_error_rate).set("steps", result.steps);
    summary.set("skipped", std::int64_t(listed.count()));
  });
  kv::print_examples(std::cout, heard, 5);
  std::cout << "test CER " << heard.character_error_rate << " (untrained " << untrained.character_error_rate
            << "), WER " << heard.word_error_rate << " after " << result.steps << " steps and "
            << session.seconds() << " s; the model is in " << options.output.string() << std::endl;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  app::CommandLine line(
      "konkanivani_train",
      "Trains a Konkani speech recogniser from scratch and keeps the weights of the epoch with the "
      "lowest character error\nrate on the validation clips: model.safetensors.\nThe data folder holds train.jsonl, "
      "validation.jsonl and test.jsonl (audio_filepath, text, duration, speaker a line),\nor a "
      "corpus of Common Voice or OpenSLR as it was published; see the README.");
  kv::add_flags(line, options);
  auto words = kv::script_words(argc, argv);
  const auto pointers = words.pointers();
  return app::run_main(static_cast<int>(words.words.size()), pointers.data(), line,
                       [&] { run(options, words.script_flag); });
}
