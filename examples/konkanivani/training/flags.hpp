// SPDX-License-Identifier: MIT
// Defines the flags of `konkanivani_train`, with their texts in --help. The flags set the options of
// train_options.hpp.
#pragma once

#include <looptorch/app/command_line.hpp>
#include <looptorch/app/flag_effects.hpp>
#include <looptorch/app/training_flags.hpp>
#include <looptorch/app/weights/first_weights.hpp>

#include "train_options.hpp"

#include <string>

namespace konkanivani {

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
  require_effect(
      line, {"mask-frames", "mask-bins"}, [&options] { return options.spec_augment; },
      "without --spec-augment");
  require_effect(
      line, {"report-sound"}, [&options] { return options.training.report || !options.report_sound; },
      "without --report");
}

}  // namespace konkanivani
