// SPDX-License-Identifier: MIT
// The settings of `konkanivani_train`, their flags, and the presets `measured` and `original`.
#pragma once

#include <looptorch/app/command_line.hpp>
#include <looptorch/app/run/run_settings.hpp>
#include <looptorch/app/training_flags.hpp>
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

/// The defaults are the preset "measured": run.sh's recipe, whose results are in the README.
struct TrainOptions {
  std::filesystem::path data, output;
  std::string preset = "measured";
  looptorch::app::FirstWeights weights;
  looptorch::app::TrainingOptions training{
      .epochs = 5, .batch_size = 64, .learning_rate = 2e-3, .warmup_steps = 150, .flush_every = 50};
  std::int64_t d_model = 128, encoder_layers = 6, decoder_layers = 3, subsampling = 4;
  std::string positions = "sinusoidal", characters = "code_point";
  std::int64_t batch_frames = 2400, shortest_first_epochs = 1;
  std::int64_t text_multiple = 0;  ///< 0: 16 with graphs, which then have few shapes, else 1
  std::string schedule = "linear";
  double ctc_weight = 0.7, dropout = 0;
  bool speed_perturbation = false, spec_augment = false;
  std::int64_t mask_frames = 20, mask_bins = 15;
  double max_seconds = 20;
  bool report_sound = true;

  /// The preset "original": the settings of the project that this example follows. For real speech on a GPU.
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

  /// Throws CommandLineError for a flag of `line` that would do nothing.
  void check_used(const looptorch::app::CommandLine& line) const {
    for (const char* const flag : {"mask-frames", "mask-bins"})
      if (!spec_augment && line.is_given(flag))
        throw looptorch::app::CommandLineError(
            looptorch::message("--", flag, " needs --spec-augment, which masks"));
  }

  [[nodiscard]] std::filesystem::path snapshots() const { return output / "snapshots"; }
  [[nodiscard]] BatchSize batch() const { return {.frames = batch_frames, .clips = training.batch_size}; }
  [[nodiscard]] LossOptions loss() const { return {.ctc_weight = ctc_weight}; }

  /// Returns the number to a multiple of which the characters of a batch's texts are padded.
  [[nodiscard]] std::int64_t padded_to() const {
    constexpr std::int64_t kOfGraphs = 16;
    return text_multiple > 0 ? text_multiple : training.capture ? kOfGraphs : 1;
  }

  /// Returns how clips are read; the sampler decides how many are in a batch.
  [[nodiscard]] looptorch::LoaderOptions loading() const {
    auto loading = training.loader_options();
    loading.batch_size = 1;
    return loading;
  }

  /// Greedy: quick enough for each epoch. The decoder transcribes if the CTC head is not trained.
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
            {"--speed-perturbation", setting(speed_perturbation)}};
  }

  [[nodiscard]] AugmentOptions augmentation() const {
    AugmentOptions augment;
    if (!speed_perturbation) augment.speeds = {1.0};
    augment.masks.max_frames = mask_frames, augment.masks.max_bins = mask_bins;
    if (!spec_augment) augment.masks.time_masks = augment.masks.mel_masks = 0;
    return augment;
  }
};

namespace detail {

inline void add_model_flags(looptorch::app::CommandLine& line, TrainOptions& options) {
  line.option("d-model", "N", options.d_model, "width", {.min = 2, .max = 16384});
  line.option("encoder-layers", "N", options.encoder_layers, "Conformer blocks", {.min = 1, .max = 1024});
  line.option("decoder-layers", "N", options.decoder_layers, "Transformer layers", {.min = 1, .max = 1024});
  line.option("subsampling", "N", options.subsampling,
              "1, 2 or 4 mel frames of 10 ms are one of the encoder's; CTC needs one a character at least",
              {.min = 1, .max = 4});
  line.choice("positions", options.positions, {"sinusoidal", "relative"},
              "how the encoder tells frames apart");
  line.choice("characters", options.characters, {"code_point", "grapheme"}, "what the model writes");
  line.option("dropout", "X", options.dropout, "share of activations", {.min = 0, .max = 0.9});
}

inline void add_recipe_flags(looptorch::app::CommandLine& line, TrainOptions& options) {
  line.option("batch-frames", "N", options.batch_frames,
              "mel frames of 10 ms in one forward pass at most, padding included; 0: any number", {.min = 0});
  line.option("batch-size", "N", options.training.batch_size,
              "clips in one forward pass at most; 0: any number", {.min = 0, .max = 65536});
  line.option("text-multiple", "N", options.text_multiple,
              "pads a batch's texts to a multiple of N characters; 0: 16 with --capture, else 1", {.min = 0});
  line.option("shortest-first-epochs", "N", options.shortest_first_epochs,
              "first epochs that go from the shortest clips to the longest", {.min = 0});
  line.choice("schedule", options.schedule, {"linear", "plateau"},
              "plateau: half the rate after 3 epochs without a better validation loss; linear: down to 0");
  line.option("ctc-weight", "X", options.ctc_weight, "of the loss; the decoder's is what remains",
              {.min = 0, .max = 1});
  line.toggle("speed-perturbation", options.speed_perturbation,
              "plays clips at 0.9, 1 or 1.1 of their speed");
  line.toggle("spec-augment", options.spec_augment, "hides frames and mel bins of each clip");
  line.option("mask-frames", "N", options.mask_frames,
              "frames of 10 ms that are hidden at most, and never more than a fifth of a clip", {.min = 0});
  line.option("mask-bins", "N", options.mask_bins, "mel bins that are hidden at most", {.min = 0, .max = 80});
  line.option("max-seconds", "S", options.max_seconds, "longer clips are refused", {.max = 60, .above = 0});
}

}  // namespace detail

/// Adds all flags of `options` to a command line.
inline void add_flags(looptorch::app::CommandLine& line, TrainOptions& options) {
  using looptorch::app::TrainingFlag;
  line.required("data", "DIR", options.data, "the corpus; see above");
  line.required("output", "DIR", options.output, "folder for the model and summary.json");
  line.preset(
      "preset", options.preset, {"measured", "original"},
      "defaults of the flags below: measured, or original, those of the project that this example follows",
      [&options](const std::string& name) {
        options = name == "original" ? TrainOptions::original() : TrainOptions();
      });
  detail::add_model_flags(line, options);
  add_weights_flags(line, options.weights,
                    "Names of the public KonkaniVani project\nare known, as in its checkpoint_epoch_15.pt: "
                    "with --preset original");
  detail::add_recipe_flags(line, options);
  add_training_flags(
      line, options.training,
      {.without = {TrainingFlag::batch_size},
       .help = {{TrainingFlag::epochs, "passes over the training clips"},
                {TrainingFlag::learning_rate, "of AdamW, after the warm-up"},
                {TrainingFlag::gradient_checkpointing,
                 "blocks run a second time in backward: less memory, same result, more time"},
                {TrainingFlag::workers, "threads that read audio"},
                {TrainingFlag::seed, "weights, order and augmentation"},
                {TrainingFlag::cache,
                 "keeps decoded audio there, as log-mel frames at each speed, for later epochs and runs"},
                {TrainingFlag::snapshot_every,
                 "writes the whole run to OUTPUT/snapshots so often; the best epoch's and the last state are "
                 "written in any case"},
                {TrainingFlag::on_bad_audio,
                 "skips lines, texts and clips that cannot be used and lists them, or stops at the first"}}});
  line.toggle("report-sound", options.report_sound,
              "the report plays the validation clips whose texts it shows, up to a minute in all (2.6 MB)");
  line.on_parsed([&options](const looptorch::app::CommandLine& parsed) { options.check_used(parsed); });
}

}  // namespace konkanivani
