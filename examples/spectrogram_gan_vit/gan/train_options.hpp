// SPDX-License-Identifier: MIT
// The settings of `gan_train`, their flags, and the model's sizes that follow from them.
#pragma once

#include <looptorch/app/command_line.hpp>
#include <looptorch/app/flags/memory_flags.hpp>
#include <looptorch/app/run/run_settings.hpp>
#include <looptorch/app/training_flags.hpp>
#include <looptorch/app/weights/first_weights.hpp>
#include <looptorch/data/loader/loader_options.hpp>

#include "../presets.hpp"
#include "config.hpp"
#include "losses.hpp"
#include "objectives.hpp"

#include <cstdint>
#include <filesystem>
#include <iostream>
#include <map>
#include <string>

namespace spectrogram_gan {

struct TrainOptions {
  // ---- Data and output ----
  std::filesystem::path data;    ///< folder of audio/ and the tables
  std::filesystem::path output;  ///< folder for the model and summary.json

  // ---- Sizes ----
  looptorch::app::FirstWeights weights;  ///< weights to begin with, of both networks
  bool is_small = false;                 ///< --small: a model for CPUs
  std::int64_t gpu_memory = 0;  ///< GB of the GPU that sets batch size and mel bins; 0: the default card
  std::int64_t n_mels = 0;      ///< mel bins from 20 to 8000 Hz; 0: the card's, or the small model's
  std::int64_t channels = 0;    ///< channels of the widest layers; 0: 256, or 32 with `is_small`

  // ---- Recipe ----
  /// A batch size of 0 means the card's, or the small model's.
  looptorch::app::TrainingOptions training{
      .epochs = 100, .batch_size = 0, .gradient_accumulation = 2, .flush_every = kFlushEvery};
  double generator_rate = 2e-4;      ///< learning rate of Adam
  double discriminator_rate = 1e-4;  ///< learning rate of Adam
  /// --winning: the discriminator waits while it is right about more than this share; 1: never.
  double accuracy = 0.9;
  double average = 0.999;  ///< decay of the generator's averaged weights, which are saved

  // ---- Objectives ----
  std::string loss = "hinge";  ///< "hinge" or "bce"
  double r1 = 0;               ///< gamma of the discriminator's gradient penalty; 0: none
  double instance_noise = 0;   ///< deviation of noise on the discriminator's input, falling to 0; 0: none
  /// Share, from 0 to 1, of real clips with another clip's emotion among those to be rejected.
  double mismatched = 0.5;
  double auxiliary = 1;  ///< weight of the error of the emotion that the discriminator predicts

  // ---- Validation ----
  std::int64_t validate_every = 100;  ///< steps between measurements of the averaged weights; 0: never

  /// Returns settings that decide what is learnt and are in no policy's state.
  [[nodiscard]] std::map<std::string, std::string> settings() const {
    using looptorch::app::setting;
    return {{"--winning", setting(accuracy)},
            {"--auxiliary", setting(auxiliary)},
            {"--average", setting(average)},
            {"--instance-noise", setting(instance_noise)},
            {"--loss", loss},
            {"--mismatched", setting(mismatched)},
            {"--r1", setting(r1)}};
  }

  /// Returns the flags that save memory.
  [[nodiscard]] looptorch::app::MemoryFlags memory_flags() const {
    return {.least_batch = least_batch(), .recomputation = ""};
  }
  /// Returns the fewest clips in a batch: 2 with --mismatched, which takes the emotions of other clips.
  [[nodiscard]] std::int64_t least_batch() const { return mismatched > 0 ? 2 : 1; }

  [[nodiscard]] std::filesystem::path snapshots() const { return output / "snapshots"; }
  [[nodiscard]] std::filesystem::path cache() const {
    return training.cache.empty() ? output / "cache" : training.cache;
  }
  [[nodiscard]] bool validates() const { return validate_every > 0; }
  /// True if the run writes snapshots. Validation needs them: the best weights are those of a snapshot.
  [[nodiscard]] bool takes_snapshots() const { return training.takes_snapshots() || validates(); }

  /// Returns the settings of both networks' objectives. Throws UsageError for an unknown loss.
  [[nodiscard]] GameOptions game() const {
    return {.loss = adversarial_loss(loss),
            .r1 = r1,
            .instance_noise = instance_noise > 0,
            .mismatched = mismatched,
            .auxiliary = auxiliary};
  }
};

/// Sets the sizes that `options` lack, and returns the model's sizes. Throws CommandLineError for flags that
/// contradict each other, and ConfigError for sizes that make no model.
[[nodiscard]] inline GanConfig choose_sizes(TrainOptions& options) {
  using looptorch::app::CommandLineError;
  check_weights_flags(options.weights);
  if (options.is_small && options.gpu_memory > 0)
    throw CommandLineError("--small and --gpu-memory each say the sizes: choose one");
  const auto& preset = options.gpu_memory > 0 ? gpu_preset(options.gpu_memory) : kDefaultPreset;
  if (options.gpu_memory > 0)
    std::cout << "for " << preset.gigabytes << " GB: batches of " << preset.gan_batch_size << ", "
              << preset.n_mels << " mel bins; then gan_sample --count " << preset.synthetic << std::endl;
  auto& batch_size = options.training.batch_size;
  if (batch_size == 0) batch_size = options.is_small ? 8 : preset.gan_batch_size;
  auto config = options.is_small ? small_size() : GanConfig{.n_mels = preset.n_mels};
  if (options.n_mels > 0) config.n_mels = options.n_mels;
  if (options.channels > 0) config.channels = options.channels;
  check_config(config, "the model's sizes");
  if (batch_size < options.least_batch())
    throw CommandLineError(
        "--mismatched takes emotions of other clips in the batch, and --batch-size is 1: give --mismatched 0");
  return config;
}

namespace detail {

inline void add_size_flags(looptorch::app::CommandLine& line, TrainOptions& options) {
  add_gpu_memory_flag(line, options.gpu_memory, "batch size and mel bins (0: of 16 GB)");
  line.flag("small", options.is_small, true, "a model for CPUs: 64 mel bins, 32 channels, batches of 8");
  line.option("n-mels", "N", options.n_mels, "mel bins from 20 to 8000 Hz; 0: as the settings say",
              {.min = 0});
  line.option("channels", "N", options.channels, "of the widest layers; 0: 256, or 32 with --small",
              {.min = 0});
  line.option("batch-size", "N", options.training.batch_size,
              "clips in one forward pass; 0: as the settings say", {.min = 0, .max = 65536});
}

inline void add_game_flags(looptorch::app::CommandLine& line, TrainOptions& options) {
  line.option("generator-rate", "X", options.generator_rate, "learning rate of Adam", {.above = 0});
  line.option("discriminator-rate", "X", options.discriminator_rate, "learning rate of Adam", {.above = 0});
  line.choice("loss", options.loss, {"hinge", "bce"}, "the adversarial loss, on logits");
  line.option("r1", "X", options.r1, "gamma of the discriminator's gradient penalty; 0: none", {.min = 0});
  line.option("instance-noise", "X", options.instance_noise,
              "deviation of noise on what the discriminator sees, falling to 0; 0: none", {.min = 0});
  line.option("mismatched", "X", options.mismatched,
              "share of real clips with another clip's emotion in what the discriminator has to reject",
              {.min = 0, .max = 1});
  line.option("auxiliary", "X", options.auxiliary,
              "weight of the emotion that the discriminator predicts from real and generated clips",
              {.min = 0});
  line.option("winning", "X", options.accuracy,
              "the discriminator waits while it is right about more than this share; 1: never",
              {.min = 0.5, .max = 1});
  line.option("average", "X", options.average, "decay of the generator's averaged weights, which are saved",
              {.min = 0, .max = 0.999999});
}

}  // namespace detail

/// Adds all flags of `options` to a command line.
inline void add_flags(looptorch::app::CommandLine& line, TrainOptions& options) {
  using looptorch::app::TrainingFlag;
  line.required("data", "DIR", options.data, "folder of audio/ and the tables");
  line.required("output", "DIR", options.output, "folder for the model and summary.json");
  detail::add_size_flags(line, options);
  detail::add_game_flags(line, options);
  add_weights_flags(
      line, options.weights,
      "Both networks: names begin\nwith generator. and discriminator., or FILE is a checkpoint with "
      "a dictionary for each, or a folder of\ngan_train; --rename =generator. takes a generator "
      "alone");
  line.option("validate-every", "STEPS", options.validate_every,
              "measures the averaged weights on validation songs so often, into OUTPUT/curve.csv, and keeps "
              "the best in\nOUTPUT/best, by way of OUTPUT/snapshots; 0: never",
              {.min = 0});
  add_training_flags(
      line, options.training,
      {.without = {TrainingFlag::batch_size, TrainingFlag::learning_rate, TrainingFlag::warmup_steps,
                   TrainingFlag::gradient_checkpointing},
       .help =
           {{TrainingFlag::epochs, "passes over the training clips"},
            {TrainingFlag::workers, "threads that read clips"},
            {TrainingFlag::seed, "weights, noise and order"},
            {TrainingFlag::cache,
             "where spectrograms are kept, 660 KB a clip at 128 mel bins; else OUTPUT/cache"},
            {TrainingFlag::on_bad_audio,
             "wrong lines, missing files and damaged audio: lists and skips them, or stops at the first"}},
       .fixed_shapes = true});
}

}  // namespace spectrogram_gan
