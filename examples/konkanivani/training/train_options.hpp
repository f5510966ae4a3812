// SPDX-License-Identifier: MIT
// The settings of `konkanivani_train`, and its presets `measured` and `original`. flags.hpp has the flags.
#pragma once

#include <looptorch/app/command_line.hpp>
#include <looptorch/app/run/run_settings.hpp>
#include <looptorch/app/training_options.hpp>
#include <looptorch/app/weights/first_weights.hpp>
#include <looptorch/data/loader/loader_options.hpp>

#include "../clips/batch.hpp"
#include "../clips/clip_frames.hpp"
#include "../decoding/ctc_decoding.hpp"
#include "../decoding/recognizer.hpp"
#include "../model/config.hpp"
#include "../model/loss.hpp"

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

namespace konkanivani {

/// The defaults are the preset "measured": the recipe of run.sh, whose results are in the README.
struct TrainOptions {
  // ---- Data and output ----
  std::filesystem::path data;       ///< folder of the corpus
  std::filesystem::path output;     ///< folder for the model and summary.json
  std::string preset = "measured";  ///< name of the preset that the other fields began with

  // ---- Model ----
  looptorch::app::FirstWeights weights;   ///< weights to begin with
  std::int64_t d_model = 128;             ///< width
  std::int64_t encoder_layers = 6;        ///< Conformer blocks
  std::int64_t decoder_layers = 3;        ///< Transformer layers
  std::int64_t subsampling = 4;           ///< mel frames of 10 ms in one frame of the encoder: 1, 2 or 4
  std::string positions = "sinusoidal";   ///< how the encoder tells frames apart; or "relative"
  std::string characters = "code_point";  ///< what the model writes; or "grapheme"
  double dropout = 0;                     ///< share of activations that are dropped

  // ---- Recipe ----
  looptorch::app::TrainingOptions training{
      .epochs = 5, .batch_size = 64, .learning_rate = 2e-3, .warmup_steps = 150, .flush_every = 50};
  std::int64_t batch_frames = 2400;  ///< most mel frames of 10 ms in a batch, padding included; 0: any number
  std::int64_t text_multiple = 0;    ///< pads a batch's texts to a multiple of so many; 0: see padded_to()
  std::int64_t shortest_first_epochs = 1;  ///< first epochs that go from the shortest clips to the longest
  std::string schedule = "linear";         ///< how the learning rate falls: "linear", down to 0, or "plateau"
  double ctc_weight = 0.7;                 ///< weight of CTC's loss, from 0 to 1; the decoder has the rest

  // ---- Clips ----
  bool speed_perturbation = false;  ///< plays clips at 0.9, 1 or 1.1 of their speed
  bool spec_augment = false;        ///< hides frames and mel bins of each clip
  std::int64_t mask_frames = 20;    ///< most frames of 10 ms in a mask, and at most a fifth of the clip
  std::int64_t mask_bins = 15;      ///< most mel bins in a mask
  double max_seconds = 20;          ///< longer clips are refused

  // ---- Report ----
  bool report_sound = true;  ///< lets the report play the validation clips whose texts it shows

  /// Returns the preset "original", of the project that this example follows: for real speech on a GPU.
  [[nodiscard]] static TrainOptions original() {
    TrainOptions options;
    options.d_model = 256, options.encoder_layers = 12, options.decoder_layers = 6, options.subsampling = 1;
    options.batch_frames = 0, options.training.batch_size = 8, options.training.epochs = 50;
    options.training.learning_rate = 5e-4, options.training.warmup_steps = 0, options.schedule = "plateau";
    options.ctc_weight = 0.3, options.dropout = 0.1;
    options.spec_augment = true, options.mask_frames = 70, options.mask_bins = 27;
    options.shortest_first_epochs = 0;
    return options;
  }

  /// Throws CommandLineError for flags that contradict each other.
  void check() const {
    looptorch::app::check_weights_flags(weights);
    if (batch_frames == 0 && training.batch_size == 0)
      throw looptorch::app::CommandLineError(
          "--batch-frames and --batch-size are both 0: a batch needs a limit");
  }

  [[nodiscard]] std::filesystem::path snapshots() const { return output / "snapshots"; }
  [[nodiscard]] BatchSize batch() const { return {.frames = batch_frames, .clips = training.batch_size}; }
  [[nodiscard]] LossOptions loss() const { return {.ctc_weight = ctc_weight}; }

  /// Returns N, where the characters of a batch's texts are padded to a multiple of N.
  [[nodiscard]] std::int64_t padded_to() const {
    constexpr std::int64_t kOfGraphs = 16;
    return text_multiple > 0 ? text_multiple : training.capture ? kOfGraphs : 1;
  }

  /// Returns how clips are read. The sampler decides how many are in a batch.
  [[nodiscard]] looptorch::LoaderOptions loading() const {
    auto loading = training.loader_options();
    loading.batch_size = 1;
    return loading;
  }

  /// Returns greedy decoding, quick enough for each epoch; the decoder's if the CTC head is not trained.
  [[nodiscard]] DecodingOptions decoding() const {
    if (ctc_weight > 0) return {.method = "greedy", .beam = {}};
    return {.method = "attention", .beam = {.beam = 1}};
  }

  [[nodiscard]] ModelConfig model(std::int64_t vocabulary) const {
    return {.vocabulary = vocabulary,
            .d_model = d_model,
            .encoder_layers = encoder_layers,
            .decoder_layers = decoder_layers,
            .dropout = dropout,
            .subsampling = subsampling,
            .positions = positions == "relative" ? Positions::relative : Positions::sinusoidal};
  }

  [[nodiscard]] SpeechOptions speech() const {
    return {.max_seconds = max_seconds, .subsampling = subsampling, .cache = training.cache};
  }

  /// Returns settings that decide what is learnt and are in no policy's state.
  [[nodiscard]] std::map<std::string, std::string> settings() const {
    using looptorch::app::setting;
    const auto masks = looptorch::message(mask_frames, " frames, ", mask_bins, " bins");
    return {{"--ctc-weight", setting(ctc_weight)},
            {"--dropout", setting(dropout)},
            {"--spec-augment", spec_augment ? masks : "off"},
            {"--speed-perturbation", setting(speed_perturbation)},
            {"--text-multiple", setting(padded_to())}};
  }

  [[nodiscard]] AugmentOptions augmentation() const {
    AugmentOptions augment;
    if (!speed_perturbation) augment.speeds = {1.0};
    augment.masks.max_frames = mask_frames, augment.masks.max_bins = mask_bins;
    if (!spec_augment) augment.masks.time_masks = augment.masks.mel_masks = 0;
    return augment;
  }
};

}  // namespace konkanivani
