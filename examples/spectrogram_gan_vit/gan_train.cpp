// SPDX-License-Identifier: MIT
// Trains a conditional GAN on spectrograms of music: one Trainer, two updates. It shows adversarial players,
// accumulation without leaks between them, an update by predicate, averaged weights, a validation that is no
// mean over batches, snapshots, the best of them.
#include <looptorch/base/files/atomic_file.hpp>
#include <looptorch/base/json/json.hpp>
#include <looptorch/data/cache/cached_dataset.hpp>
#include <looptorch/data/loader/pinned_prefetch_loader.hpp>
#include <looptorch/state/snapshot/choose_snapshot.hpp>
#include <looptorch/trainer.hpp>

#include "balance.hpp"
#include "command_line.hpp"
#include "data.hpp"
#include "dataset_folder.hpp"
#include "device.hpp"
#include "labels.hpp"
#include "left_out.hpp"
#include "loudness.hpp"
#include "model.hpp"
#include "objectives.hpp"
#include "presets.hpp"
#include "summary.hpp"
#include "validation.hpp"

#include <array>
#include <chrono>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

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
  std::string loss = "hinge", device = "auto", on_bad_audio = "skip", resume;
  double r1 = 0, instance_noise = 0, mismatched = 0.5, auxiliary = 1;
  std::int64_t workers = 2, seed = 1, validate_every = 100, snapshot_every = 0;

  [[nodiscard]] fs::path snapshots() const { return output / "snapshots"; }
  [[nodiscard]] bool validates() const { return validate_every > 0; }
  /// The best weights are those of a snapshot.
  [[nodiscard]] bool takes_snapshots() const { return snapshot_every > 0 || !resume.empty() || validates(); }
  [[nodiscard]] lt::LoaderOptions loading(std::int64_t batch) const {
    return {.batch_size = batch, .workers = workers, .on_error = sg::on_bad_audio(on_bad_audio)};
  }
};

using Clips = lt::CachedDataset<sg::SpectrogramDataset>;

/// Notes for the user of what the data lacks; printed as the program ends.
struct Notes {
  std::shared_ptr<sg::ShortClips> short_clips =
      std::make_shared<sg::ShortClips>(sg::SpectrogramOptions{}.seconds);
  std::shared_ptr<sg::LeftOut> left_out = std::make_shared<sg::LeftOut>();
};

struct Data {
  Clips train, validation;
  at::Tensor labels_N2;
};

/// Empty where a run does not validate.
struct Validation {
  sg::EmotionNet judge{nullptr};
  sg::HeldOutClips held_out;
};

/// The step whose averaged weights were nearest to validation clips.
struct Best {
  std::int64_t step;
  double frechet;
};

struct Outcome {
  lt::FitResult fit;
  std::int64_t discriminator_steps;
  std::optional<Best> best;
};

/// Trains from `snapshot`, or anew where that is empty, and leaves the averaged weights in the model.
Outcome train(Gan& gan, const Clips& clips, const Validation& validation, const Options& options,
              const fs::path& snapshot, sg::LeftOut& left_out) {
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
  const auto seed = static_cast<std::uint64_t>(options.seed);
  const std::vector<sg::WantedEmotions> wanted{{validation.held_out.conditions_N2}};
  const auto note = [&](lt::WindowContext& window) {
    const auto step = window.run.progress().step;
    if (!options.validates() || step % options.validate_every != 0) return;
    const auto value = [&](const char* name) { return window.run.metrics().find(name).value(); };
    sg::add_to_curve(options.output / "curve.csv", step, value("validation.frechet"),
                     value("validation.kid"));
  };

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
                      lt::CacheFlushEvery<>{.steps = sg::steps_between_flushes(options.gradient_accumulation_steps),
                                            .at_epoch_end = true},
                      lt::When{options.validates(),
                               lt::Validate{wanted, sg::HeldOutDistance(validation.judge, validation.held_out, seed),
                                            {.every = options.validate_every}}},
                      lt::On{lt::kObserve, note},
                      lt::When{options.takes_snapshots(),
                               lt::SnapshotEvery{.folder = options.snapshots(), .steps = options.snapshot_every,
                                                 .keep = options.snapshot_every > 0 ? 3 : 1,
                                                 .best = options.validates() ? "validation.frechet" : ""}},
                      lt::ShowProgress{});
  // clang-format on
  lt::PinnedPrefetchLoader loader(clips, options.loading(options.batch_size),
                                  lt::RandomSampler{.seed = seed});
  auto result = trainer.fit(
      loader, {.epochs = options.epochs,
               .max_steps = options.max_steps > 0 ? std::optional(options.max_steps) : std::nullopt,
               .resume = snapshot});
  left_out.add(result.skipped_samples);
  if (result.status == lt::FitStatus::interrupted) throw sg::Interrupted(result.reason, result.steps);
  trainer.policy<lt::AverageWeights>().copy_to(*gan);
  std::optional<Best> best;
  if (options.takes_snapshots()) {
    const auto& kept = trainer.policy<lt::SnapshotEvery>().best;
    if (const auto value = kept.value()) best = Best{kept.step(), *value};
  }
  return {std::move(result), trainer.updates()[0].applied, best};
}

/// The network that judges is another one than any of gan_measure's.
Validation prepare_validation(const Data& data, std::int64_t n_mels, at::Device device, bool goes_on,
                              const Options& options, sg::LeftOut& left_out) {
  if (!options.validates()) return {};
  sg::require_held_out(data.validation.size());
  constexpr std::uint64_t kJudge = 2;  // a chain of seeds beside the run's
  const sg::EmotionNetTraining training{
      .epochs = 8,
      .seed = lt::derive_seed(static_cast<std::uint64_t>(options.seed), kJudge),
      .loading = options.loading(16)};
  auto judge = sg::validation_judge(data.train, n_mels, device, training,
                                    options.output / "judge.safetensors", goes_on);
  auto held_out = sg::hear_held_out(judge, data.validation, training.loading, left_out);
  return {std::move(judge), std::move(held_out)};
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
  if (options.batch_size == 1 && options.mismatched > 0)
    throw sg::CommandLineError(
        "--mismatched takes emotions of other clips in the batch, and --batch_size is 1: give --mismatched 0");
  return config;
}

sg::SongSplits load_splits(const Options& options, const Notes& notes) {
  const bool skips = sg::on_bad_audio(options.on_bad_audio) == lt::OnError::skip;
  return sg::split_songs(sg::load_songs(options.data, skips ? notes.left_out.get() : nullptr));
}

Data open_data(const sg::SongSplits& splits, std::int64_t n_mels, const Options& options,
               const Notes& notes) {
  const auto cached = [&](const auto& songs) {
    sg::SpectrogramDataset dataset(songs, {.mel_bins = n_mels}, notes.short_clips);
    const lt::CacheOptions cache{.folder = options.cache.empty() ? options.output / "cache" : options.cache,
                                 .settings = dataset.settings()};
    return Clips(std::move(dataset), cache);
  };
  return {cached(splits.train), cached(splits.validation), sg::labels_of(splits.train)};
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

/// Forgets what an earlier run left in the folder, once it is sure that this one begins anew.
void begin_anew(const Options& options) {
  for (const auto* file : {"curve.csv", "judge.safetensors", "best/config.json"})
    fs::remove(options.output / file);
}

void write_summary(const Outcome& outcome, const Gan& gan, const Options& options, double seconds,
                   std::int64_t peak_bytes, std::size_t left_out) {
  auto summary = lt::Json::object();
  summary.set("steps", outcome.fit.steps).set("discriminator_steps", outcome.discriminator_steps);
  summary.set("loss_discriminator", sg::finite_or_null(outcome.fit.losses[0]));
  summary.set("loss_generator", sg::finite_or_null(outcome.fit.losses[1]));
  if (outcome.best) summary.set("best_step", outcome.best->step).set("best_frechet", outcome.best->frechet);
  summary.set("parameters_generator", sg::count_parameters(*gan->generator));
  summary.set("parameters_discriminator", sg::count_parameters(*gan->discriminator));
  summary.set("left_out", static_cast<std::int64_t>(left_out));
  summary.set("seconds", seconds).set("peak_bytes", peak_bytes);
  lt::write_file_atomically(options.output / "summary.json", summary.dump(2) + "\n");
}

/// The last averaged weights into OUTPUT, and the best ones into OUTPUT/best.
void save_models(Gan& gan, const Data& data, const Outcome& outcome, const Options& options,
                 const fs::path& resumed) {
  const auto scale = sg::mean_scale(data.train, 64, sg::on_bad_audio(options.on_bad_audio));
  const auto save = [&](const fs::path& folder) {
    fs::create_directories(folder);
    sg::save_loudness(folder / "loudness.json", scale);
    sg::save_labels(folder, data.labels_N2);
    sg::save_model(gan, folder);
  };
  save(options.output);
  if (!outcome.best) return;
  const std::array folders{options.snapshots(),
                           resumed.empty() ? resumed : (resumed / "..").lexically_normal()};
  if (sg::load_averages(gan, outcome.best->step, folders)) return save(options.output / "best");
  std::cerr << "the snapshot of the best step, " << outcome.best->step
            << ", is gone: " << (options.output / "best").string() << " is not written" << std::endl;
}

void run(Options options) {
  const auto begin = std::chrono::steady_clock::now();
  const auto device = sg::choose_device(options.device);
  const auto config = config_of(options);
  const Notes notes;
  const sg::TellAtEnd tell_short(notes.short_clips);
  const sg::TellAtEnd tell_left_out(notes.left_out);
  const auto splits = load_splits(options, notes);
  const auto newest = lt::choose_snapshot(options.resume, options.snapshots());
  claim_output(config, options, newest.path);
  if (!options.resume.empty()) std::cerr << newest.describe() << std::flush;
  if (newest.path.empty()) begin_anew(options);
  const auto data = open_data(splits, config.n_mels, options, notes);
  const auto validation =
      prepare_validation(data, config.n_mels, device, !newest.path.empty(), options, *notes.left_out);
  torch::manual_seed(static_cast<std::uint64_t>(options.seed));
  Gan gan(config);
  gan->to(device);
  std::cout << sg::count_parameters(*gan->generator) << " parameters of the generator, "
            << sg::count_parameters(*gan->discriminator) << " of the discriminator, " << data.train.size()
            << " training clips" << std::endl;

  const auto outcome = train(gan, data.train, validation, options, newest.path, *notes.left_out);
  fs::remove(options.output / "summary.json");  // a folder with a summary holds a finished model
  save_models(gan, data, outcome, options, newest.path);
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
  write_summary(outcome, gan, options, elapsed.count(), sg::peak_bytes(device), notes.left_out->count());
  std::cout << outcome.fit.steps << " steps, in " << outcome.discriminator_steps
            << " of them the discriminator learnt too; " << elapsed.count() << " s; the model is in "
            << options.output.string();
  if (const auto& best = outcome.best)
    std::cout << ", the best on validation songs (step " << best->step << ", Frechet distance "
              << best->frechet << ") in " << (options.output / "best").string();
  std::cout << std::endl;
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
              "share of real clips with another clip's emotion in what the discriminator has to reject",
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
  line.option("on_bad_audio", "skip|stop", options.on_bad_audio,
              "a wrong line, missing file or damaged audio is left out and listed, or ends the run");
  line.option("validate_every", "STEPS", options.validate_every,
              "measures the averaged weights on validation songs so often, into OUTPUT/curve.csv, and keeps "
              "the best in\nOUTPUT/best, by way of OUTPUT/snapshots; 0: never",
              {.min = 0});
  line.option("snapshot_every", "STEPS", options.snapshot_every,
              "writes the whole run to OUTPUT/snapshots so often, and when it is stopped; 0: never",
              {.min = 0});
  line.option(
      "resume", "auto|DIR", options.resume,
      "goes on from a snapshot or the newest in a folder; auto: in OUTPUT/snapshots, if there is one");
  return sg::run_main(argc, argv, line, [&] { run(options); });
}
