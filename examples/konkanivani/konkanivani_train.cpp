// SPDX-License-Identifier: MIT
// Trains a Konkani speech recogniser from scratch on a folder of manifests, and prints the test set's
// character and word error rates. It shows a whole looptorch run: sampler, loader, objective, policies,
// `fit`.
#include <looptorch/app/run_main.hpp>
#include <looptorch/app/session.hpp>
#include <looptorch/policies.hpp>
#include <looptorch/trainer.hpp>

#include "clips/corpus_layout.hpp"
#include "clips/hardest_batches.hpp"
#include "clips/skipped_items.hpp"
#include "training/evaluation.hpp"
#include "training/first_weights.hpp"
#include "training/flags.hpp"
#include "training/objective.hpp"
#include "training/run_identity.hpp"
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

/// Returns the loader of the training clips: batches of similar length, in another order in each epoch.
auto make_training_loader(const kv::SpeechDataset& clips, const Options& options) {
  const auto loading = options.loading();
  return lt::PinnedPrefetchLoader(
      clips, loading,
      app::shard_of_rank(clips.by_length(options.batch(), loading.seed, options.shortest_first_epochs)));
}

auto make_validation_loader(const kv::SpeechDataset& clips, const Options& options) {
  return lt::PinnedPrefetchLoader(clips, options.loading(),
                                  app::shard_of_rank(clips.by_length(options.batch())));
}

/// Returns the schedule of the learning rate.
lt::ScheduleLr make_schedule(const Options& options) {
  lt::ScheduleLr schedule{.decay = lt::LinearDecay{}, .warmup_steps = options.training.warmup_steps};
  if (options.schedule == "plateau") schedule.decay = lt::PlateauDecay{.factor = 0.5, .patience = 3};
  return schedule;
}

/// Returns the recipe's policies; the session has those that general flags ask for. Keeps references to the
/// loader and the validation.
auto make_policies(const Options& options, auto& validation_clips, kv::Validation& validation) {
  const auto& training = options.training;
  const auto report = [&validation](lt::EpochContext& epoch) { validation.report(epoch); };
  return lt::Policies{
      lt::When{training.gradient_checkpointing, lt::Checkpointed<kv::ConformerBlock>{}},
      lt::ClipGradNorm{5.0},
      make_schedule(options),
      lt::Validate{validation_clips, validation.measure()},
      lt::On{lt::kObserve, report},
      lt::RestoreBest{.metric = "validation.cer"},
      lt::SnapshotEvery{
          .folder = options.snapshots(), .steps = training.snapshot_every, .best = "validation.cer"}};
}

/// Returns what the run's report and snapshots say about the run, besides its flags.
app::RunDetails details_of(const kv::TrainingData& data, const Options& options,
                           const app::MemoryFlags& memory_flags) {
  return {.settings = options.settings(),
          .data = {{"the validation list of --data", app::samples_of(data.validation)}},
          .facts = {{"training clips", std::to_string(data.train.size())}},
          .memory_flags = memory_flags,
          .ranks = {.batch_statistics_per_rank = true}};
}

/// Trains from the session's snapshot, or anew, and leaves the best weights in the model.
lt::FitResult train(app::Session& session, kv::Recognizer& recognizer, const kv::TrainingData& data,
                    const Options& options, kv::SkippedItems* skipped) {
  auto& model = recognizer.model;
  const auto& training = options.training;
  auto clips = make_training_loader(data.train, options);
  auto validation_clips = make_validation_loader(data.validation, options);
  kv::Validation validation(recognizer, data.validation, options);
  const kv::HardestBatches hardest(data.train, options.batch(), training.unsigned_seed(), session.resumes());

  lt::FusedAdamW optimizer(model->parameters(), {.lr = training.learning_rate, .weight_decay = 1e-6});
  lt::Trainer trainer(
      model, optimizer, kv::JointLoss{options.loss()}, make_policies(options, validation_clips, validation),
      session.policies(*model, details_of(data, options, hardest.flags())).without<lt::SnapshotEvery>());
  app::check_memory(
      training, trainer, [&] { return hardest; }, hardest.flags());

  // The identity is written only when nothing can refuse the resume: `fit` may refuse a snapshot of this
  // folder, which has its identity already. Otherwise the folder needs one before its first snapshot.
  const auto save_identity = [&] {
    if (app::leads()) kv::save_identity(model->config(), recognizer.vocabulary, options.snapshots());
  };
  if (!lt::snapshot_lies_in(session.snapshot().path, options.snapshots())) save_identity();
  return session.fit(trainer, clips, [&](const lt::FitResult& fit) {
    if (session.resumes()) save_identity();
    if (skipped) skipped->add(fit.skipped_samples), skipped->add(validation_clips.skipped());
  });
}

/// Prints the settings and their origin: `script_flag` selected those of the Python script.
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
  session.require_apart("--weights", options.weights.file);
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
  if (app::leads()) kv::begin_in(options.output, config, session.begins_anew());
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
  const auto trained = test();
  session.finish([&](app::Summary& summary) {
    kv::save_recognizer(recognizer, options.output);
    summary.set("cer", trained.character_error_rate).set("wer", trained.word_error_rate);
    summary.set("cer_untrained", untrained.character_error_rate).set("steps", result.steps);
    summary.set("skipped", std::int64_t(listed.count()));
  });
  kv::print_examples(std::cout, trained, 5);
  std::cout << "test CER " << trained.character_error_rate << " (untrained " << untrained.character_error_rate
            << "), WER " << trained.word_error_rate << " after " << result.steps << " steps and "
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
