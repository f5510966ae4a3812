// SPDX-License-Identifier: MIT
// Trains a conditional GAN on spectrograms of music: one Trainer, two updates. It shows an update that runs
// only when a condition holds, averaged weights, a validation metric of whole sets of clips, and snapshots of
// the best weights.
#include <looptorch/app/run_main.hpp>
#include <looptorch/app/session.hpp>
#include <looptorch/policies.hpp>
#include <looptorch/trainer.hpp>

#include "clips/claim_output.hpp"
#include "clips/labels.hpp"
#include "clips/song_clips.hpp"
#include "gan/balance.hpp"
#include "gan/first_weights.hpp"
#include "gan/model.hpp"
#include "gan/objectives.hpp"
#include "gan/output_folder.hpp"
#include "gan/train_options.hpp"
#include "measures/held_out_judge.hpp"

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
namespace sg = spectrogram_gan;
using sg::Gan;
using Options = sg::TrainOptions;

struct Outcome {
  lt::FitResult fit;
  std::int64_t discriminator_steps;
  std::optional<sg::Best> best;
};

/// Returns Adam for one of the networks.
lt::FusedAdam make_adam(const torch::nn::Module& player, double learning_rate) {
  return lt::FusedAdam(player.parameters(), {.lr = learning_rate, .betas = {0.5, 0.999}});
}

/// Returns the recipe's policies; the session has those that general flags ask for.
auto make_policies(const Options& options, const sg::HeldOutJudge& validation) {
  const auto& training = options.training;
  const std::int64_t every = options.validate_every;
  const sg::HeldOutDistance distance(validation.judge, validation.held_out, training.unsigned_seed());
  std::vector<sg::WantedEmotions> wanted{{validation.held_out.conditions_N2}};
  const sg::NoteCurve note{options.output / "curve.csv", options.validates() ? every : 0, distance.shown()};
  return lt::Policies{
      lt::ClipGradNorm{1.0},
      lt::AverageWeights{.rule = lt::Ema{.decay = options.average, .warmup = true}, .update = "generator"},
      sg::AnnealInstanceNoise{options.instance_noise},
      lt::When{options.validates(), lt::Validate{std::move(wanted), distance, {.every = every}}},
      lt::On{lt::kObserve, note},
      lt::When{options.takes_snapshots(),
               lt::SnapshotEvery{.folder = options.snapshots(),
                                 .steps = training.snapshot_every,
                                 .keep = training.snapshot_every > 0 ? 3 : 1,
                                 .best = options.validates() ? "validation.frechet" : ""}}};
}

/// Returns what the run's report and snapshots say about the run, besides its flags.
app::RunDetails details_of(const sg::GanConfig& config, const sg::Clips& clips, const sg::Clips& held_out,
                           const Options& options) {
  app::RunDetails details{.settings = options.settings(),
                          .facts = {{"training clips", std::to_string(clips.size())},
                                    {"batch-size", std::to_string(options.training.batch_size)},
                                    {"n-mels", std::to_string(config.n_mels)}},
                          .memory_flags = options.memory_flags(),
                          .flush_at_epoch_end = true};
  if (options.validates()) details.data["the validation list of --data"] = app::samples_of(held_out);
  return details;
}

/// Trains from the session's snapshot, or anew, and leaves the averaged weights in the model.
Outcome train(app::Session& session, Gan& gan, const sg::Clips& clips, const sg::Clips& held_out,
              const sg::HeldOutJudge& validation, const Options& options, sg::SkippedItems& skipped) {
  auto of_generator = make_adam(*gan->generator, options.generator_rate);
  auto of_discriminator = make_adam(*gan->discriminator, options.discriminator_rate);
  lt::Trainer trainer(gan,
                      lt::Update{of_discriminator,
                                 sg::DiscriminatorObjective{options.game()},
                                 {.name = "discriminator", .when = sg::UnlessWinning{options.accuracy}}},
                      lt::Update{of_generator, sg::GeneratorObjective{options.game()}, {.name = "generator"}},
                      make_policies(options, validation),
                      session.policies(*gan, details_of(gan->config(), clips, held_out, options))
                          .without<lt::SnapshotEvery>());
  const auto first = [&] { return sg::any_batch(clips, options.training.batch_size); };
  app::check_memory(options.training, trainer, first, options.memory_flags());
  if (app::leads()) sg::claim_output(options.output, gan->config());
  auto result = session.fit(trainer, session.shuffled(clips),
                            [&](const lt::FitResult& fit) { skipped.add(fit.skipped_samples); });
  trainer.policy<lt::AverageWeights>().copy_to(*gan);
  std::optional<sg::Best> best;
  if (options.takes_snapshots()) best = sg::best_of(trainer.policy<lt::SnapshotEvery>().best);
  return {std::move(result), trainer.updates()[0].applied, best};
}

/// Checks the weights, so that unusable ones are refused before any data is read.
void check_weights(const sg::GanConfig& config, const app::FirstWeights& weights, bool resumes) {
  if (weights.file.empty() || resumes) return;
  const Gan trial(config);
  app::load_first_weights(*trial, weights, sg::players_of(trial));
}

void run(Options options) {
  const auto config = sg::choose_sizes(options);
  app::Session session(options.training, options.output, {options.data});
  session.require_apart("--weights", options.weights.file);
  sg::Notes notes;
  const app::PrintAtEnd print_short(*notes.short_clips);
  const app::PrintAtEnd print_skipped(notes.skipped);
  if (app::leads()) sg::require_claimable(options.output, session.snapshot().path, config, sg::load_config);
  check_weights(config, options.weights, session.resumes());
  session.seed();  // as if no trial model had been drawn
  const auto splits = sg::load_splits(options.data, options.training, notes);
  if (app::leads() && session.begins_anew()) sg::begin_anew(options);
  const auto clips = sg::cached_clips(splits.train, config.n_mels, options.cache(), notes);
  const auto held_out = sg::cached_clips(splits.validation, config.n_mels, options.cache(), notes);
  const auto validation = sg::prepare_validation(clips, held_out, config.n_mels, session.device(),
                                                 !session.begins_anew(), options, notes.skipped);
  session.seed();  // as if the judge had not been trained, which a resumed run skips
  Gan gan(config);
  app::begin_from_weights(*gan, options.weights, session.resumes(), sg::players_of(gan));
  gan->to(session.device());
  std::cout << sg::count_parameters(*gan->generator) << " parameters of the generator, "
            << sg::count_parameters(*gan->discriminator) << " of the discriminator, " << clips.size()
            << " training clips" << std::endl;

  const auto [fit, discriminator_steps, best] =
      train(session, gan, clips, held_out, validation, options, notes.skipped);
  if (!app::leads()) return;
  session.finish([&, &fit = fit, &best = best, steps = discriminator_steps](app::Summary& summary) {
    sg::save_models(gan, clips, sg::labels_of(splits.train), best, options, session.snapshot().path);
    summary.set("steps", fit.steps).set("discriminator_steps", steps);
    summary.set("loss_discriminator", fit.losses[0]).set("loss_generator", fit.losses[1]);
    if (best) summary.set("best_step", best->step).set("best_frechet", best->frechet);
    summary.set("parameters_generator", sg::count_parameters(*gan->generator));
    summary.set("parameters_discriminator", sg::count_parameters(*gan->discriminator));
    summary.set("skipped", std::int64_t(notes.skipped.count()));
  });
  std::cout << fit.steps << " steps, in " << discriminator_steps << " of them the discriminator learnt too; "
            << session.seconds() << " s; the model is in " << options.output.string();
  if (best)
    std::cout << ", the best on validation songs (step " << best->step << ", Frechet distance "
              << best->frechet << ") in " << (options.output / "best").string();
  std::cout << std::endl;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  app::CommandLine line(
      "gan_train",
      "Trains a conditional GAN on spectrograms of music.\nThe data folder holds audio/ and "
      "tables of valence and arousal in DEAM's form (song_id, valence_mean, arousal_mean).");
  sg::add_flags(line, options);
  return app::run_main(
      argc, argv, line, [&] { run(options); }, [&] { return options.least_batch(); });
}
