// SPDX-License-Identifier: MIT
// Trains a conditional GAN on spectrograms of music: one Trainer, two updates. It shows adversarial players,
// accumulation without leaks between them, an update by predicate, averaged weights, a validation that is no
// mean over batches, snapshots, the best of them.
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
#include "clips/labels.hpp"
#include "clips/song_clips.hpp"
#include "gan/balance.hpp"
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

/// Trains from `snapshot`, or anew where that is empty, and leaves the averaged weights in the model.
Outcome train(Gan& gan, const sg::Clips& clips, const sg::Clips& held_out, const sg::HeldOutJudge& validation,
              const Options& options, const lt::NewestSnapshot& snapshot, sg::LeftOut& left_out,
              app::Summary& summary) {
  const auto& training = options.training;
  lt::FusedAdam of_generator(gan->generator->parameters(),
                             {.lr = options.generator_rate, .betas = {0.5, 0.999}});
  lt::FusedAdam of_discriminator(gan->discriminator->parameters(),
                                 {.lr = options.discriminator_rate, .betas = {0.5, 0.999}});
  const auto seed = training.unsigned_seed();
  const std::vector<sg::WantedEmotions> wanted{{validation.held_out.conditions_N2}};
  const sg::HeldOutDistance distance(validation.judge, validation.held_out, seed);
  std::map<std::string, std::string> of_validation;
  if (options.validates()) of_validation["the validation list of --data"] = app::samples_of(held_out);
  const sg::NoteCurve note{options.output / "curve.csv", options.validates() ? options.validate_every : 0,
                           distance.shown()};

  // clang-format off
  lt::Trainer trainer(gan,
                      lt::Update{of_discriminator, sg::DiscriminatorObjective{options.game()},
                                 {.name = "discriminator", .when = sg::UnlessWinning{options.accuracy}}},
                      lt::Update{of_generator, sg::GeneratorObjective{options.game()}, {.name = "generator"}},
                      app::data_parallel(),
                      lt::Accumulate<>{training.gradient_accumulation},
                      lt::When{training.mixed_precision(), lt::MixedPrecision{.type = training.autocast_type()}},
                      lt::BackendFlags{.tf32 = training.tf32, .cudnn_benchmark = training.cudnn_benchmark},
                      training.autopsy_policy(options.output),
                      app::profile_policy(training, options.output),
                      lt::ClipGradNorm{1.0},
                      lt::AverageWeights{.rule = lt::Ema{.decay = options.average, .warmup = true},
                                         .update = "generator"},
                      sg::AnnealInstanceNoise{options.instance_noise},
                      lt::When{training.flush_every > 0, lt::CacheFlushEvery<>{.at_epoch_end = true, .batches = training.flush_every}},
                      lt::When{options.validates(),
                               lt::Validate{wanted, distance, {.every = options.validate_every}}},
                      lt::On{lt::kObserve, note},
                      app::RunSettings(options.settings(), of_validation),
                      lt::When{options.takes_snapshots(),
                               lt::SnapshotEvery{.folder = options.snapshots(), .steps = training.snapshot_every,
                                                 .keep = training.snapshot_every > 0 ? 3 : 1,
                                                 .best = options.validates() ? "validation.frechet" : ""}},
                      lt::When{training.memory, lt::WatchMemory{.remedies = app::beside_given(options.memory_flags(), training).of_parts()}},
                      app::run_log(training, options.output, *gan,
                                   {{"training clips", std::to_string(clips.size())}, {"batch-size", std::to_string(training.batch_size)},
                                    {"n-mels", std::to_string(gan->config().n_mels)}}),
                      lt::ShowProgress{});
  // clang-format on
  app::check_memory(
      training, trainer, [&] { return sg::any_batch(clips, training.batch_size); }, options.memory_flags());
  lt::PinnedPrefetchLoader loader(clips, training.loader_options(),
                                  app::share_of_rank(lt::RandomSampler{.seed = seed}));
  if (app::leads()) sg::claim_output(options.output, gan->config());
  auto result = app::fit(trainer, loader, training, snapshot);
  app::set_memory(summary, trainer.policy<lt::WatchMemory>());
  left_out.add(result.skipped_samples);
  app::throw_if_interrupted(result);
  trainer.policy<lt::AverageWeights>().copy_to(*gan);
  std::optional<sg::Best> best;
  if (options.takes_snapshots()) best = sg::best_of(trainer.policy<lt::SnapshotEvery>().best);
  return {std::move(result), trainer.updates()[0].applied, best};
}

void run(Options options) {
  const app::Stopwatch stopwatch;
  const auto& training = options.training;
  const auto device = training.choose_device();
  const auto config = sg::choose_sizes(options);
  sg::Notes notes;
  const app::PrintAtEnd print_short(*notes.short_clips);
  const app::PrintAtEnd print_left_out(notes.left_out);
  const auto splits = sg::load_splits(options.data, training, notes);
  const app::OutputFolder folder(options.output, {options.data});
  const auto newest = training.snapshot_to_resume(options.snapshots());
  if (app::leads()) sg::require_claimable(options.output, newest.path, config, sg::load_config);
  training.print_resume(newest);
  if (app::leads() && newest.path.empty()) sg::begin_anew(options);
  const auto clips = sg::cached_clips(splits.train, config.n_mels, options.cache(), notes);
  const auto held_out = sg::cached_clips(splits.validation, config.n_mels, options.cache(), notes);
  const auto validation = sg::prepare_validation(clips, held_out, config.n_mels, device, !newest.path.empty(),
                                                 options, notes.left_out);
  training.seed_generators();
  Gan gan(config);
  gan->to(device);
  std::cout << sg::count_parameters(*gan->generator) << " parameters of the generator, "
            << sg::count_parameters(*gan->discriminator) << " of the discriminator, " << clips.size()
            << " training clips" << std::endl;

  app::Summary summary;
  const auto [fit, discriminator_steps, best] =
      train(gan, clips, held_out, validation, options, newest, notes.left_out, summary);
  if (!app::leads()) return;
  const app::EarlierSummary earlier(options.output / "summary.json");  // removes it
  sg::save_models(gan, clips, sg::labels_of(splits.train), best, options, newest.path);
  const double seconds = stopwatch.seconds();
  summary.set("steps", fit.steps).set("discriminator_steps", discriminator_steps);
  summary.set("loss_discriminator", fit.losses[0]).set("loss_generator", fit.losses[1]);
  if (best) summary.set("best_step", best->step).set("best_frechet", best->frechet);
  summary.set("parameters_generator", sg::count_parameters(*gan->generator));
  summary.set("parameters_discriminator", sg::count_parameters(*gan->discriminator));
  summary.set("left_out", std::int64_t(notes.left_out.count())).set("seconds", seconds);
  summary.set("peak_bytes", app::peak_bytes(device));
  earlier.keep_costs(summary, fit);
  summary.write(options.output / "summary.json");
  std::cout << fit.steps << " steps, in " << discriminator_steps << " of them the discriminator learnt too; "
            << seconds << " s; the model is in " << options.output.string();
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
