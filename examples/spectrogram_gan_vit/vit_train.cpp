// SPDX-License-Identifier: MIT
// Trains a Vision Transformer to hear valence and arousal in spectrograms of music: from a Hugging Face
// folder, unfrozen from its head down, or from scratch. It shows parameter groups, gradual unfreezing,
// recomputed blocks, early stopping on a metric of whole sets, and the best weights at the end.
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

#include "clips/claim_output.hpp"
#include "presets.hpp"
#include "vit/objective.hpp"
#include "vit/output_folder.hpp"
#include "vit/scores.hpp"
#include "vit/train_options.hpp"
#include "vit/training_data.hpp"
#include "vit/unfreezing.hpp"

#include <cstdint>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace {

namespace app = looptorch::app;
namespace fs = std::filesystem;
namespace lt = looptorch;
namespace sg = spectrogram_gan;
namespace sv = spectrogram_vit;
using Options = sv::TrainOptions;

struct Outcome {
  lt::FitResult fit;
  std::int64_t best_step;
  sv::Scores validation, test;
};

/// Trains from `snapshot`, or anew where that is empty, and leaves the weights in the model that were best on
/// validation clips.
Outcome train(sv::ViT& model, const sv::TrainingData& data, const Options& options,
              const lt::NewestSnapshot& snapshot, sv::LeftOut& left_out, app::Summary& summary) {
  const auto& training = options.training;
  const lt::FusedAdamWOptions full{.lr = training.learning_rate, .weight_decay = options.weight_decay};
  auto of_backbone = full;
  of_backbone.lr = options.rate_of_backbone();
  lt::FusedAdamW optimizer(
      lt::parameter_groups<lt::FusedAdamW>(model, full, {{{"backbone.*"}, of_backbone}}));
  const auto rules = options.unfreezing(model->config().layers);
  const auto loading = training.loader_options();
  const sv::TrainingClips training_clips(data.train, data.generated, options.masks(),
                                         model->normalisation->mean.cpu());
  lt::PinnedPrefetchLoader clips(training_clips, loading,
                                 app::share_of_rank(lt::RandomSampler{.seed = loading.seed}));
  lt::PinnedPrefetchLoader validation(data.validation, loading, app::share_of_rank());
  const auto shown = std::make_shared<std::vector<lt::Example>>();
  const auto note = [&](lt::EpochContext& epoch) {
    sv::add_to_curve(options.output, epoch);
    if (!shown->empty()) epoch.run.offer_examples("validation", *shown);
  };

  // clang-format off
  lt::Trainer trainer(model, optimizer, sv::ViTObjective{options.mixup},
                      app::data_parallel(),
                      lt::Accumulate<>{training.gradient_accumulation},
                      lt::When{training.mixed_precision(), lt::MixedPrecision{.type = training.autocast_type()}},
                      lt::BackendFlags{.tf32 = training.tf32, .cudnn_benchmark = training.cudnn_benchmark},
                      lt::When{training.gradient_checkpointing, lt::Checkpointed<sv::ViTBlock>{}},
                      training.autopsy_policy(options.output),
                      app::profile_policy(training, options.output),
                      lt::ClipGradNorm{1.0},
                      lt::ScheduleLr{.decay = lt::CosineDecay{}, .warmup_steps = training.warmup_steps},
                      lt::UnfreezeAt(rules),
                      sv::ShowUnfreezing{.last_epoch = sv::last_epoch(rules)},
                      lt::Validate{validation, sv::EmotionMeasure{shown}},
                      lt::StopEarly{.metric = "stopping.ccc", .patience = options.patience, .better = lt::Better::higher},
                      lt::When{training.flush_every > 0, lt::CacheFlushEvery<>{.at_epoch_end = true, .batches = training.flush_every}},
                      lt::On{lt::kObserve, note},
                      app::RunSettings(options.settings(), {{"the validation list of --data", app::samples_of(data.validation)}}),
                      lt::RestoreBest{.metric = "validation.ccc", .better = lt::Better::higher},
                      lt::When{training.takes_snapshots(),
                               lt::SnapshotEvery{.folder = options.snapshots(), .steps = training.snapshot_every}},
                      lt::When{training.memory, lt::WatchMemory{.remedies = app::beside_given({}, training).of_parts()}},
                      app::run_log(training, options.output, *model,
                                   {{"training clips", std::to_string(training_clips.size())}, {"batch-size", std::to_string(training.batch_size)},
                                    {"n-mels", std::to_string(options.n_mels)}}),
                      lt::ShowProgress{});
  // clang-format on
  app::check_memory(training, trainer, [&] { return sg::any_batch(training_clips, training.batch_size); });
  if (app::leads()) sg::claim_output(options.output, model->config());
  auto result = app::fit(trainer, clips, training, snapshot);
  app::set_memory(summary, trainer.policy<lt::WatchMemory>());
  for (const auto& skipped : {result.skipped_samples, validation.skipped()}) left_out.add(skipped);
  app::throw_if_interrupted(result);
  if (!app::leads()) return {};
  const auto scores = [&](const sv::Clips& clips) {
    return trainer.evaluate(lt::PinnedPrefetchLoader(clips, loading), sv::EmotionMeasure{}).metrics;
  };
  const auto best_step = trainer.policy<lt::RestoreBest>().best.step();
  return {std::move(result), best_step, scores(data.validation), scores(data.test)};
}

void run(Options options) {
  const app::Stopwatch stopwatch;
  options.complete();
  const auto& training = options.training;
  const auto device = training.choose_device();
  training.seed_generators();
  auto model = sv::first_model(options);
  sg::Notes notes;
  const app::PrintAtEnd print_short(*notes.short_clips);
  const app::PrintAtEnd print_left_out(notes.left_out);
  const auto newest = training.snapshot_to_resume(options.snapshots());
  const auto data = sv::load_training_data(options, options.n_mels, notes);
  const app::OutputFolder folder(options.output, {options.data});
  if (app::leads()) sg::require_claimable(options.output, newest.path, model->config(), sv::load_config);
  training.print_resume(newest);
  if (app::leads() && newest.path.empty()) sv::begin_anew(options);
  const auto energies = [&](const auto& clips, sv::MelStatistics* statistics = nullptr) {
    return sv::mean_energies(clips, training.loader_options(), notes.left_out, statistics);
  };
  sv::MelStatistics statistics;
  const sv::LinearProbe probe(energies(data.train, &statistics));
  statistics.write(model->normalisation);
  const auto validation_probe = probe.score(energies(data.validation));
  const auto test_probe = probe.score(energies(data.test));
  model->to(device);
  const auto generated = data.generated ? data.generated->size() : 0;
  std::cout << sv::trained_of(*model).of_parameters << " parameters, " << data.train.size()
            << " training clips and " << generated << " generated ones" << std::endl;

  app::Summary summary;
  const auto [fit, best_step, validation, test] =
      train(model, data, options, newest, notes.left_out, summary);
  if (!app::leads()) return;
  const app::EarlierSummary earlier(options.output / "summary.json");  // removes it
  sv::save_vit(model, options.output);
  const double seconds = stopwatch.seconds();
  sv::set_scores(summary, test, "", "");
  sv::set_scores(summary, test_probe, "", "_probe");
  sv::set_scores(summary, validation, "validation_", "");
  summary.set("steps", fit.steps).set("epochs", fit.epochs).set("best_step", best_step);
  summary.set("parameters", sv::trained_of(*model).of_parameters).set("generated", generated);
  summary.set("left_out", std::int64_t(notes.left_out.count())).set("seconds", seconds);
  summary.set("peak_bytes", app::peak_bytes(device));
  earlier.keep_costs(summary, fit);
  summary.write(options.output / "summary.json");
  sv::print_scores(std::cout, {{"test", test},
                               {"test, linear probe", test_probe},
                               {"validation", validation},
                               {"validation, linear probe", validation_probe}});
  const auto weights = best_step < 0 ? std::string("the weights are the last, since no epoch ended")
                                     : lt::message("the best weights are those of step ", best_step);
  std::cout << fit.steps << " steps, " << weights << "; " << seconds << " s; the model is in "
            << options.output.string() << std::endl;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  app::CommandLine line(
      "vit_train",
      "Trains a Vision Transformer to hear valence and arousal in spectrograms of music.\nThe data folder "
      "holds audio/ and tables of valence and arousal in DEAM's form (song_id, valence_mean, arousal_mean).");
  sv::add_flags(line, options);
  return app::run_main(argc, argv, line, [&] { run(options); });
}
