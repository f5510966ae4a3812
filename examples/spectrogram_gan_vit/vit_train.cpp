// SPDX-License-Identifier: MIT
// Trains a Vision Transformer to predict valence and arousal from spectrograms of music: either from scratch,
// or from a Hugging Face folder, whose blocks are unfrozen step by step. It shows parameter groups, gradual
// unfreezing, activation checkpointing, early stopping on a metric of a whole set of clips, and restored best
// weights.
#include <looptorch/app/run_main.hpp>
#include <looptorch/app/session.hpp>
#include <looptorch/policies.hpp>
#include <looptorch/trainer.hpp>

#include "clips/claim_output.hpp"
#include "presets.hpp"
#include "vit/first_model.hpp"
#include "vit/flags.hpp"
#include "vit/learning_curve.hpp"
#include "vit/linear_probe.hpp"
#include "vit/objective.hpp"
#include "vit/scores.hpp"
#include "vit/show_unfreezing.hpp"
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

/// Trains from the session's snapshot, or anew. Leaves the weights in the model that were best in validation.
Outcome train(app::Session& session, sv::ViT& model, const sv::TrainingData& data, const Options& options,
              sv::SkippedItems& skipped) {
  const auto& training = options.training;
  const lt::FusedAdamWOptions full{.lr = training.learning_rate, .weight_decay = options.weight_decay};
  auto of_backbone = full;
  of_backbone.lr = options.rate_of_backbone();
  lt::FusedAdamW optimizer(
      lt::parameter_groups<lt::FusedAdamW>(model, full, {{{"backbone.*"}, of_backbone}}));
  const auto rules = options.unfreezing(model->config().layers);
  const sv::TrainingClips clips(data.train, data.generated, options.masks(),
                                model->normalisation->mean.cpu());
  auto validation = session.loader(data.validation);
  const auto shown = std::make_shared<std::vector<lt::Example>>();
  const auto note = [&](lt::EpochContext& epoch) {
    sv::add_to_curve(options.output, epoch);
    if (!shown->empty()) epoch.run.offer_examples("validation", *shown);
  };
  const app::RunDetails details{.settings = options.settings(),
                                .data = {{"the validation list of --data", app::samples_of(data.validation)}},
                                .facts = {{"training clips", std::to_string(clips.size())},
                                          {"batch-size", std::to_string(training.batch_size)},
                                          {"n-mels", std::to_string(options.n_mels)}},
                                .memory_flags = {},
                                .flush_at_epoch_end = true};

  lt::Trainer trainer(
      model, optimizer, sv::ViTObjective{options.mixup},
      lt::When{training.gradient_checkpointing, lt::Checkpointed<sv::ViTBlock>{}}, lt::ClipGradNorm{1.0},
      lt::ScheduleLr{.decay = lt::CosineDecay{}, .warmup_steps = training.warmup_steps},
      lt::UnfreezeAt(rules), sv::ShowUnfreezing{.last_epoch = sv::last_epoch(rules)},
      lt::Validate{validation, sv::EmotionMeasure{shown}},
      lt::StopEarly{.metric = "stopping.ccc", .patience = options.patience, .better = lt::Better::higher},
      lt::On{lt::kObserve, note}, lt::RestoreBest{.metric = "validation.ccc", .better = lt::Better::higher},
      session.policies(*model, details));
  app::check_memory(training, trainer, [&] { return sg::any_batch(clips, training.batch_size); });
  if (app::leads()) sg::claim_output(options.output, model->config());
  auto result = session.fit(trainer, session.shuffled(clips), [&](const lt::FitResult& fit) {
    skipped.add(fit.skipped_samples), skipped.add(validation.skipped());
  });
  if (!app::leads()) return {};
  const auto scores = [&](const sv::Clips& clips) {
    return trainer.evaluate(session.whole(clips), sv::EmotionMeasure{}).metrics;
  };
  const auto best_step = trainer.policy<lt::RestoreBest>().best.step();
  return {std::move(result), best_step, scores(data.validation), scores(data.test)};
}

/// The scores of a linear probe, for comparison.
struct ProbeScores {
  sv::Scores validation, test;
};

/// Fits a linear probe to the training clips, adds their mel bins to `statistics`, and scores the probe on
/// the other clips. Adds unreadable clips to `skipped`.
ProbeScores probe_scores(const sv::TrainingData& data, const lt::LoaderOptions& loading,
                         sv::SkippedItems& skipped, sv::MelStatistics& statistics) {
  const sv::LinearProbe probe(sv::mean_energies(data.train, loading, skipped, &statistics));
  auto validation = probe.score(sv::mean_energies(data.validation, loading, skipped));
  return {std::move(validation), probe.score(sv::mean_energies(data.test, loading, skipped))};
}

/// Writes the model and summary.json, and prints the scores. Throws Error, and writes nothing, if the weights
/// have diverged.
void write_results(app::Session& session, const sv::ViT& model, const Options& options,
                   const Outcome& outcome, const ProbeScores& probe, std::int64_t generated,
                   const sv::SkippedItems& skipped) {
  sv::require_finite(outcome.validation, "validation");
  sv::require_finite(outcome.test, "test");
  const auto& fit = outcome.fit;
  session.finish([&](app::Summary& summary) {
    sv::save_vit(model, options.output);
    sv::set_scores(summary, outcome.test, "", "");
    sv::set_scores(summary, probe.test, "", "_probe");
    sv::set_scores(summary, outcome.validation, "validation_", "");
    summary.set("steps", fit.steps).set("epochs", fit.epochs).set("best_step", outcome.best_step);
    summary.set("parameters", sv::trained_of(*model).of_parameters).set("generated", generated);
    summary.set("skipped", std::int64_t(skipped.count()));
  });
  sv::print_scores(std::cout, {{"test", outcome.test},
                               {"test, linear probe", probe.test},
                               {"validation", outcome.validation},
                               {"validation, linear probe", probe.validation}});
  const std::string why = fit.epochs > 0 ? "no epoch's concordance was finite" : "no epoch ended";
  const auto weights = outcome.best_step < 0
                           ? "the weights are the last, since " + why
                           : lt::message("the best weights are those of step ", outcome.best_step);
  std::cout << fit.steps << " steps, " << weights << "; " << session.seconds() << " s; the model is in "
            << options.output.string() << std::endl;
}

void run(Options options) {
  options.complete();
  const auto& training = options.training;
  app::Session session(training, options.output, {options.data, options.generated});
  session.require_apart("--pretrained", options.pretrained);
  session.require_apart("--weights", options.weights.file);
  auto model = sv::first_model(options);
  const auto begun =
      app::begin_from_weights(*model, options.weights, session.resumes(),
                              {.parts = {}, .translate = sv::translate_from_classifier, .advise = {}});
  sg::Notes notes;
  const app::PrintAtEnd print_short(*notes.short_clips);
  const app::PrintAtEnd print_skipped(notes.skipped);
  if (app::leads())
    sg::require_claimable(options.output, session.snapshot().path, model->config(), sv::load_config);
  const auto data = sv::load_training_data(options, options.n_mels, notes);
  if (app::leads() && session.begins_anew()) sv::begin_anew(options);
  sv::MelStatistics statistics;
  const auto probe = probe_scores(data, training.loader_options(), notes.skipped, statistics);
  if (!begun.has("normalisation.mean")) statistics.write(model->normalisation);
  model->to(session.device());
  const auto generated = data.generated ? data.generated->size() : 0;
  std::cout << sv::trained_of(*model).of_parameters << " parameters, " << data.train.size()
            << " training clips and " << generated << " generated ones" << std::endl;

  const auto outcome = train(session, model, data, options, notes.skipped);
  if (!app::leads()) return;
  write_results(session, model, options, outcome, probe, generated, notes.skipped);
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  app::CommandLine line(
      "vit_train",
      "Trains a Vision Transformer to predict valence and arousal from spectrograms of music.\nThe data folder "
      "holds audio/ and tables of valence and arousal in DEAM's form (song_id, valence_mean, arousal_mean).");
  sv::add_flags(line, options);
  return app::run_main(argc, argv, line, [&] { run(options); });
}
