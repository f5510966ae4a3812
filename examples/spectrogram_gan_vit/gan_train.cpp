// SPDX-License-Identifier: MIT
// Trains a conditional GAN on spectrograms of music: one Trainer, two updates. It shows adversarial players,
// accumulation without leaks between them, an update by predicate, averaged weights, snapshots.
#include <looptorch/data/cached_dataset.hpp>
#include <looptorch/data/pinned_prefetch_loader.hpp>
#include <looptorch/state/atomic_file.hpp>
#include <looptorch/state/choose_snapshot.hpp>
#include <looptorch/state/json.hpp>
#include <looptorch/trainer.hpp>

#include "balance.hpp"
#include "command_line.hpp"
#include "data.hpp"
#include "dataset_folder.hpp"
#include "device.hpp"
#include "loudness.hpp"
#include "model.hpp"
#include "objectives.hpp"
#include "presets.hpp"
#include "summary.hpp"

#include <array>
#include <chrono>
#include <filesystem>
#include <iostream>
#include <optional>
#include <string>

namespace {

namespace fs = std::filesystem;
namespace lt = looptorch;
namespace sg = spectrogram_gan;
using sg::Gan;

struct Options {
  fs::path data, output, cache;
  std::int64_t gpu_memory = 0, batch_size = 0, n_mels = 0, channels = 0;  // 0: as the preset or size says
  bool is_small = false, mixed_precision = false;
  std::int64_t gradient_accumulation_steps = 2, epochs = 100, max_steps = 0;
  double generator_rate = 2e-4, discriminator_rate = 1e-4, accuracy = 0.9, average = 0.999;
  std::string loss = "hinge", device = "auto", resume;
  double r1 = 0, instance_noise = 0, mismatched = 0.5, auxiliary = 1;
  std::int64_t workers = 2, seed = 1, snapshot_every = 0;

  [[nodiscard]] fs::path snapshots() const { return output / "snapshots"; }
  [[nodiscard]] bool takes_snapshots() const { return snapshot_every > 0 || !resume.empty(); }
};

using Clips = lt::CachedDataset<const sg::SpectrogramDataset&>;

struct Outcome {
  lt::FitResult fit;
  std::int64_t discriminator_steps;
};

Outcome train(Gan& gan, const Clips& clips, const Options& options, const fs::path& snapshot) {
  constexpr std::array kBetas{0.5, 0.999};
  lt::FusedAdam of_generator(gan->generator->parameters(), {.lr = options.generator_rate, .betas = kBetas});
  lt::FusedAdam of_discriminator(gan->discriminator->parameters(),
                                 {.lr = options.discriminator_rate, .betas = kBetas});
  const sg::GameOptions game{.loss = sg::adversarial_loss(options.loss),
                             .r1 = options.r1,
                             .instance_noise = options.instance_noise > 0,
                             .mismatched = options.mismatched,
                             .auxiliary = options.auxiliary};
  const bool on_gpu = gan->fooled.is_cuda();

  // One part a line.
  // clang-format off
  lt::Trainer trainer(gan,
                      lt::Update{of_discriminator, sg::DiscriminatorObjective{game},
                                 {.name = "discriminator", .when = sg::UnlessWinning{options.accuracy}}},
                      lt::Update{of_generator, sg::GeneratorObjective{game}, {.name = "generator"}},
                      lt::Accumulate<>{options.gradient_accumulation_steps},
                      lt::When{options.mixed_precision && on_gpu, lt::Autocast<lt::fp16>{}},
                      lt::When{options.mixed_precision && !on_gpu, lt::Autocast<lt::bf16>{}},
                      lt::ClipGradNorm{1.0},
                      lt::AverageWeights{.rule = lt::Ema{.decay = options.average, .warmup = true},
                                         .update = "generator"},
                      sg::AnnealInstanceNoise{options.instance_noise},
                      lt::CacheFlushEvery<10>{.at_epoch_end = true},
                      lt::When{options.takes_snapshots(), lt::SnapshotEvery{.folder = options.snapshots(),
                                                                            .steps = options.snapshot_every}},
                      lt::ShowProgress{});
  // clang-format on
  lt::PinnedPrefetchLoader loader(clips, {.batch_size = options.batch_size, .workers = options.workers},
                                  lt::RandomSampler{.seed = static_cast<std::uint64_t>(options.seed)});
  auto result = trainer.fit(
      loader, {.epochs = options.epochs,
               .max_steps = options.max_steps > 0 ? std::optional(options.max_steps) : std::nullopt,
               .resume = snapshot});
  if (result.status == lt::FitStatus::interrupted) throw sg::Interrupted(result.reason, result.steps);
  trainer.policy<lt::AverageWeights>().copy_to(*gan);
  return {std::move(result), trainer.updates()[0].applied};
}

sg::GanConfig config_of(Options& options) {
  if (options.is_small && options.gpu_memory > 0)
    throw sg::CommandLineError("--small and --gpu-memory each say the sizes: choose one");
  const auto& preset = options.gpu_memory > 0 ? sg::gpu_preset(options.gpu_memory) : sg::kDefaultPreset;
  if (options.gpu_memory > 0)
    std::cout << "for " << preset.gigabytes << " GB: batches of " << preset.batch_size << ", "
              << preset.n_mels << " mel bins; then gan_sample --count " << preset.synthetic << std::endl;
  if (options.batch_size == 0) options.batch_size = options.is_small ? 8 : preset.batch_size;
  auto config = options.is_small ? sg::small_size() : sg::GanConfig{.n_mels = preset.n_mels};
  if (options.n_mels > 0) config.n_mels = options.n_mels;
  if (options.channels > 0) config.channels = options.channels;
  sg::check_config(config, "gan_train");
  return config;
}

/// A run must be of the model that its folder was begun with, and of that of the snapshot it goes on from:
/// weights do not tell one `n_mels` from another.
void claim_output(const sg::GanConfig& config, const Options& options, const fs::path& snapshot) {
  const auto require_same = [&](const fs::path& folder) {
    if (fs::exists(folder / "config.json"))
      sg::require_same_model(sg::load_config(folder / "config.json"), config, folder.string());
  };
  require_same(options.output);
  if (!snapshot.empty()) require_same((snapshot / "../..").lexically_normal());
  fs::create_directories(options.output);
  sg::save_config(options.output / "config.json", config);
}

void write_summary(const Outcome& outcome, const Gan& gan, const Options& options, double seconds,
                   std::int64_t peak_bytes) {
  auto summary = lt::Json::object();
  summary.set("steps", outcome.fit.steps).set("discriminator_steps", outcome.discriminator_steps);
  summary.set("loss_discriminator", sg::finite_or_null(outcome.fit.losses[0]));
  summary.set("loss_generator", sg::finite_or_null(outcome.fit.losses[1]));
  summary.set("parameters_generator", sg::count_parameters(*gan->generator));
  summary.set("parameters_discriminator", sg::count_parameters(*gan->discriminator));
  summary.set("seconds", seconds).set("peak_bytes", peak_bytes);
  lt::write_file_atomically(options.output / "summary.json", summary.dump(2) + "\n");
}

void run(Options options) {
  const auto begin = std::chrono::steady_clock::now();
  torch::manual_seed(static_cast<std::uint64_t>(options.seed));
  const auto device = sg::choose_device(options.device);
  const auto config = config_of(options);
  const auto splits = sg::split_songs(sg::load_songs(options.data));
  const sg::SpectrogramDataset songs(splits.train, {.mel_bins = config.n_mels});
  const auto newest = lt::choose_snapshot(options.resume, options.snapshots());
  claim_output(config, options, newest.path);
  if (!options.resume.empty()) std::cerr << newest.describe() << std::flush;
  const Clips clips(songs, {.folder = options.cache.empty() ? options.output / "cache" : options.cache,
                            .settings = songs.settings()});
  const sg::TellShortClips tell(songs.short_clips());
  Gan gan(config);
  gan->to(device);
  std::cout << sg::count_parameters(*gan->generator) << " parameters of the generator, "
            << sg::count_parameters(*gan->discriminator) << " of the discriminator, " << clips.size()
            << " training clips" << std::endl;

  const auto outcome = train(gan, clips, options, newest.path);
  fs::remove(options.output / "summary.json");  // a folder with a summary holds a finished model
  sg::save_loudness(options.output / "loudness.json", sg::mean_scale(clips));
  sg::save_model(gan, options.output);
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
  write_summary(outcome, gan, options, elapsed.count(), sg::peak_bytes(device));
  std::cout << outcome.fit.steps << " steps, in " << outcome.discriminator_steps
            << " of them the discriminator learnt too; " << elapsed.count() << " s; the model is in "
            << options.output.string() << std::endl;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  sg::CommandLine line("gan_train",
                       "Trains a conditional GAN on spectrograms of music.\nThe data folder holds audio/ and "
                       "tables of valence and arousal in DEAM's form (song_id, valence_mean, arousal_mean).");
  line.required("data", "DIR", options.data, "folder of audio/ and the tables");
  line.required("output", "DIR", options.output, "folder for the model and summary.json");
  line.option("gpu-memory", "GB", options.gpu_memory, "settings for a card of 8, 12, 16 or 24 GB; 0: of 16",
              {.min = 0});
  line.flag("small", options.is_small, true, "a model for CPUs: 64 mel bins, 32 channels, batches of 8");
  line.option("n_mels", "N", options.n_mels, "mel bins from 20 to 8000 Hz; 0: as the settings say",
              {.min = 0});
  line.option("channels", "N", options.channels, "of the widest layers; 0: 256, or 32 with --small",
              {.min = 0});
  line.option("batch_size", "N", options.batch_size, "clips in one forward pass; 0: as the settings say",
              {.min = 0, .max = 65536});
  line.option("gradient_accumulation_steps", "N", options.gradient_accumulation_steps, "batches in one step",
              {.min = 1, .max = 65536});
  line.option("epochs", "N", options.epochs, "passes over the training clips", {.min = 1});
  line.option("max_steps", "N", options.max_steps, "ends earlier, after so many steps; 0: does not",
              {.min = 0});
  line.option("generator_rate", "X", options.generator_rate, "learning rate of Adam", {.above = 0});
  line.option("discriminator_rate", "X", options.discriminator_rate, "learning rate of Adam", {.above = 0});
  line.option("loss", "NAME", options.loss, "hinge or bce");
  line.option("r1", "X", options.r1, "gamma of the discriminator's gradient penalty; 0: none", {.min = 0});
  line.option("instance_noise", "X", options.instance_noise,
              "deviation of noise on what the discriminator sees, falling to 0; 0: none", {.min = 0});
  line.option("mismatched", "X", options.mismatched,
              "share of real clips with another emotion in what the discriminator has to reject",
              {.min = 0, .max = 1});
  line.option("auxiliary", "X", options.auxiliary,
              "weight of the emotion that the discriminator hears in real and generated clips", {.min = 0});
  line.option("winning", "X", options.accuracy,
              "the discriminator waits while it is right about more than this share; 1: never",
              {.min = 0.5, .max = 1});
  line.option("average", "X", options.average, "decay of the generator's averaged weights, which are saved",
              {.min = 0, .max = 0.999999});
  line.flag("mixed_precision", options.mixed_precision, true, "fp16 on a GPU, bf16 on a CPU");
  line.option("device", "NAME", options.device, "cpu, cuda, cuda:1, or auto: cuda if there is one");
  line.option("workers", "N", options.workers, "threads that read clips", {.min = 0, .max = 1024});
  line.option("seed", "N", options.seed, "weights, noise and order", {.min = 0});
  line.option("cache", "DIR", options.cache,
              "where spectrograms are kept, 660 KB a clip at 128 mel bins; else OUTPUT/cache");
  line.option("snapshot_every", "STEPS", options.snapshot_every,
              "writes the whole run to OUTPUT/snapshots so often, and when it is stopped; 0: never",
              {.min = 0});
  line.option(
      "resume", "auto|DIR", options.resume,
      "goes on from a snapshot or the newest in a folder; auto: in OUTPUT/snapshots, if there is one");
  return sg::run_main(argc, argv, line, [&] { run(options); });
}
