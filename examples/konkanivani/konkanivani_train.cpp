// SPDX-License-Identifier: MIT
// Trains a Konkani speech recogniser from scratch on a folder of manifests, and says how many characters and
// words of the test set it gets wrong. It shows a whole looptorch run: sampler, loader, objective, policies,
// `fit`.
#include <looptorch/app/device.hpp>
#include <looptorch/app/earlier_summary.hpp>
#include <looptorch/app/fit.hpp>
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

#include "corpus_layout.hpp"
#include "evaluation.hpp"
#include "left_out.hpp"
#include "resume.hpp"
#include "train_options.hpp"
#include "training_data.hpp"
#include "validation.hpp"

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
using kv::Batch, kv::KonkaniVani;
using Options = kv::TrainOptions;

/// Trains from `snapshot`, or anew where that is empty, and leaves the best weights in the model.
lt::FitResult train(kv::Recognizer& recognizer, const kv::TrainingData& data, const Options& options,
                    const lt::NewestSnapshot& snapshot, kv::LeftOut* left_out, app::Summary& summary) {
  auto& model = recognizer.model;
  const auto& training = options.training;
  lt::FusedAdamW optimizer(model->parameters(), {.lr = training.learning_rate, .weight_decay = 1e-6});
  auto objective = [weights = options.loss()](KonkaniVani& model, const Batch& batch) {
    const auto encoded = model->encode(batch.mel_BMF, batch.lengths_B);
    return kv::joint_loss(model, encoded, batch.frames, batch.targets, weights);
  };
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

  const kv::HardestBatches hardest(data.train, options.batch(), loading.seed, !snapshot.path.empty());

  // clang-format off
  lt::Trainer trainer(model, optimizer, objective,
                      app::data_parallel({.batch_statistics_per_rank = true}),
                      lt::Accumulate<>{training.gradient_accumulation},
                      lt::When{training.mixed_precision(), lt::MixedPrecision{.type = training.autocast_type()}},
                      lt::BackendFlags{.tf32 = training.tf32, .cudnn_benchmark = training.cudnn_benchmark},
                      lt::When{training.gradient_checkpointing, lt::Checkpointed<kv::ConformerBlock>{}},
                      training.autopsy_policy(options.output),
                      app::profile_policy(training, options.output),
                      lt::ClipGradNorm{5.0},
                      schedule,
                      lt::Validate{validation_clips, validation.measure()},
                      lt::When{training.flush_every > 0, lt::CacheFlushEvery<>{.batches = training.flush_every}},
                      lt::When{training.memory, lt::WatchMemory{.remedies = app::beside_given(hardest.flags(), training).of_parts()}},
                      lt::ShowProgress{},
                      lt::On{lt::kObserve, report},
                      app::RunSettings(options.settings(), {{"the validation list of --data", app::samples_of(data.validation)}}),
                      app::run_log(training, options.output, *model, {{"training clips", std::to_string(data.train.size())}}),
                      lt::RestoreBest{.metric = "validation.cer"},
                      lt::SnapshotEvery{.folder = options.snapshots(), .steps = training.snapshot_every,
                                        .best = "validation.cer"});
  // clang-format on
  app::check_memory(
      training, trainer, [&] { return hardest; }, hardest.flags());
  const auto identify = [&] {
    if (app::leads()) kv::save_identity(model->config(), recognizer.vocabulary, options.snapshots());
  };
  // A resumed run may yet be refused, and its snapshots' folder has an identity.
  if (!kv::lies_in(options.snapshots(), snapshot.path)) identify();
  const auto result = app::fit(trainer, clips, training, snapshot);
  if (!snapshot.path.empty()) identify();
  app::set_memory(summary, trainer.policy<lt::WatchMemory>());
  if (left_out) left_out->add(result.skipped_samples), left_out->add(validation_clips.skipped());
  app::throw_if_interrupted(result);
  const auto& kept = trainer.policy<lt::RestoreBest>();
  if (kept.restored)
    std::cerr << "keeps the weights of step " << kept.best.step() << " (validation CER " << *kept.best.value()
              << ")" << std::endl;
  return result;
}

void run(const Options& options) {
  const app::Stopwatch stopwatch;
  options.check();
  const auto& training = options.training;
  const auto device = training.choose_device();
  training.seed_generators();
  kv::LeftOut listed;
  const app::PrintAtEnd print_at_end(listed);
  auto* const left_out = training.skips_bad_audio() ? &listed : nullptr;
  auto corpus = kv::load_corpus(options.data, left_out);
  auto vocabulary = kv::vocabulary_of(corpus.train, options);
  const auto config = options.model(vocabulary.size());
  kv::check_config(config, "the model's sizes");
  const app::OutputFolder folder(options.output);
  const auto newest = training.snapshot_to_resume(options.snapshots());
  if (!newest.path.empty()) kv::require_same_run(config, vocabulary, newest.path);
  if (app::leads()) kv::begin_in(options.output, config, newest.path);
  training.print_resume(newest);
  const auto data = kv::load_training_data(std::move(corpus), vocabulary, options, left_out);
  kv::Recognizer recognizer{KonkaniVani(config), std::move(vocabulary)};
  recognizer.model->to(device);

  std::cout << kv::count_parameters(*recognizer.model) << " parameters, " << recognizer.vocabulary.size()
            << " characters, " << data.train.size() << " training clips" << std::endl;
  const auto test = [&] {
    return kv::transcribe_all(recognizer, data.test, options.batch(), {.workers = training.workers},
                              options.decoding(), left_out);
  };
  const auto untrained = app::leads() ? test() : kv::Transcripts();
  app::Summary summary;
  const auto result = train(recognizer, data, options, newest, left_out, summary);
  if (!app::leads()) return;
  const auto heard = test();
  const app::EarlierSummary earlier(options.output / "summary.json");  // removes it
  kv::save_recognizer(recognizer, options.output);

  const double seconds = stopwatch.seconds();
  summary.set("cer", heard.character_error_rate).set("wer", heard.word_error_rate);
  summary.set("cer_untrained", untrained.character_error_rate).set("steps", result.steps);
  summary.set("seconds", seconds).set("peak_bytes", app::peak_bytes(device));
  earlier.keep_costs(summary, result);
  summary.set("left_out", std::int64_t(listed.count())).write(options.output / "summary.json");
  kv::print_examples(std::cout, heard, 5);
  std::cout << "test CER " << heard.character_error_rate << " (untrained " << untrained.character_error_rate
            << "), WER " << heard.word_error_rate << " after " << result.steps << " steps and " << seconds
            << " s; the model is in " << options.output.string() << std::endl;
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
  return app::run_main(argc, argv, line, [&] { run(options); });
}
