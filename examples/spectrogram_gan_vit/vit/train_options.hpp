// SPDX-License-Identifier: MIT
// The settings of `vit_train`, with checks for settings that contradict each other.
#pragma once

#include <looptorch/app/command_line.hpp>
#include <looptorch/app/run/run_settings.hpp>
#include <looptorch/app/training_options.hpp>
#include <looptorch/app/weights/first_weights.hpp>
#include <looptorch/audio/spec_augment.hpp>

#include "../presets.hpp"
#include "config.hpp"
#include "unfreezing.hpp"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace spectrogram_vit {

/// The defaults are those of the preset "base": the settings of the project that this example follows.
struct TrainOptions {
  // ---- Data and output ----
  std::filesystem::path data;       ///< folder of audio/ and the tables
  std::filesystem::path output;     ///< folder for the model and summary.json
  std::filesystem::path generated;  ///< clips of gan_sample, for training alone; empty: none
  std::string preset = "base";      ///< "base" or "small": the preset from which the other fields began

  // ---- Model ----
  std::filesystem::path pretrained;      ///< Hugging Face folder of a ViT; empty: `from_scratch`
  bool from_scratch = false;             ///< begins with random weights, of the preset's size
  looptorch::app::FirstWeights weights;  ///< weights to begin with, in the model chosen by the two above
  std::int64_t gpu_memory = 0;  ///< GB of the GPU that sets batch size and mel bins; 0: the default card
  std::int64_t n_mels = 0;      ///< mel bins from 20 to 8000 Hz; 0: the card's
  std::int64_t image_size = 0;  ///< height and width of the images; 0: the model's own
  double dropout = 0;           ///< share of activations dropped, in a model from scratch

  // ---- Recipe ----
  /// A batch size of 0 means the card's.
  looptorch::app::TrainingOptions training{.epochs = 30,
                                           .batch_size = 0,
                                           .gradient_accumulation = 4,
                                           .learning_rate = 1e-4,
                                           .flush_every = spectrogram_gan::kFlushEvery};
  double backbone_rate = 0.1;      ///< learning rate of a pretrained backbone, as a share of the head's
  double weight_decay = 0.01;      ///< weight decay of AdamW
  std::string unfreeze = {};       ///< schedule of a pretrained model; empty: default_unfreezing()
  std::int64_t patience = 5;       ///< ends after so many epochs without a better concordance in validation
  double mixup = 0;                ///< alpha of mixup's Beta distribution; 0: no mixup
  bool spec_augment = false;       ///< hides frames and mel bins of each training clip
  std::int64_t mask_frames = 200;  ///< most frames of 23 ms that are hidden
  std::int64_t mask_bins = 16;     ///< most mel bins that are hidden

  /// Returns the preset "small": a ViT of 330,000 weights that learns from scratch on a CPU.
  [[nodiscard]] static TrainOptions small() {
    TrainOptions options;
    options.preset = "small", options.from_scratch = true, options.n_mels = size_named("small").n_mels;
    options.training.batch_size = 12, options.training.epochs = 15;
    options.training.gradient_accumulation = 1, options.training.learning_rate = 1e-3;
    options.training.warmup_steps = 50;
    options.weight_decay = 0.05, options.mask_bins = 8;
    return options;
  }

  /// Sets missing sizes by the card's memory. Throws CommandLineError for flags that contradict each other.
  void complete() {
    check();
    const auto& card =
        gpu_memory > 0 ? spectrogram_gan::gpu_preset(gpu_memory) : spectrogram_gan::kDefaultPreset;
    if (training.batch_size == 0) training.batch_size = card.vit_batch_size;
    if (n_mels == 0) n_mels = card.n_mels;
    if (gpu_memory > 0)
      std::cout << "for " << card.gigabytes << " GB: batches of " << training.batch_size << ", " << n_mels
                << " mel bins" << std::endl;
  }

  /// Throws CommandLineError for flags that contradict each other.
  void check() const {
    using looptorch::app::CommandLineError;
    check_weights_flags(weights);
    if (pretrained.empty() && !from_scratch)
      throw CommandLineError(
          "--pretrained names a Hugging Face folder of a ViT, such as ViT-B/16-224's; without one, give "
          "--from-scratch or --preset small (--weights says no sizes)");
    if (!pretrained.empty() && from_scratch)
      throw CommandLineError(
          "--pretrained and --from-scratch (or --preset small) each say the first weights: "
          "choose one");
    if (preset == "small" && gpu_memory > 0)
      throw CommandLineError("--preset small and --gpu-memory each say the sizes: choose one");
    if (!from_scratch && dropout > 0)
      throw CommandLineError("--dropout needs --from-scratch: a pretrained model says its own");
    if (from_scratch && !unfreeze.empty())
      throw CommandLineError("--unfreeze needs --pretrained: a model from scratch is trained whole");
  }

  /// Throws CommandLineError for a flag of `line` that would do nothing.
  void check_used(const looptorch::app::CommandLine& line) const {
    using looptorch::app::CommandLineError;
    if (from_scratch && line.is_given("backbone-rate"))
      throw CommandLineError(
          "--backbone-rate needs --pretrained: a model from scratch has one rate, --learning-rate");
    for (const char* const flag : {"mask-frames", "mask-bins"})
      if (!spec_augment && line.is_given(flag))
        throw CommandLineError(looptorch::message("--", flag, " needs --spec-augment, which masks"));
  }

  /// Returns settings that decide what is learnt and are in no policy's state.
  [[nodiscard]] std::map<std::string, std::string> settings() const {
    const auto hidden = looptorch::message(mask_frames, " frames, ", mask_bins, " bins");
    return {{"--mixup", looptorch::app::setting(mixup)}, {"--spec-augment", spec_augment ? hidden : "off"}};
  }

  [[nodiscard]] std::filesystem::path snapshots() const { return output / "snapshots"; }
  [[nodiscard]] std::filesystem::path cache() const {
    return training.cache.empty() ? output / "cache" : training.cache;
  }

  /// Returns the backbone's learning rate; from scratch it is that of the head.
  [[nodiscard]] double rate_of_backbone() const {
    return training.learning_rate * (from_scratch ? 1 : backbone_rate);
  }

  [[nodiscard]] std::optional<looptorch::audio::SpecAugmentOptions> masks() const {
    if (!spec_augment) return std::nullopt;
    return looptorch::audio::SpecAugmentOptions{
        .time_masks = 1, .max_frames = mask_frames, .mel_masks = 1, .max_bins = mask_bins};
  }

  /// Returns the rules of which parameters are trained from which epoch on.
  [[nodiscard]] std::vector<looptorch::UnfreezeRule> unfreezing(std::int64_t blocks) const {
    if (from_scratch) return train_all();
    return unfreeze_rules(unfreeze.empty() ? default_unfreezing(blocks) : parse_unfreezing(unfreeze), blocks);
  }
};

}  // namespace spectrogram_vit
