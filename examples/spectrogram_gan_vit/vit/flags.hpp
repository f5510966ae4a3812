// SPDX-License-Identifier: MIT
// Defines the flags of `vit_train`, with their texts in --help. The flags set the options of
// train_options.hpp.
#pragma once

#include <looptorch/app/command_line.hpp>
#include <looptorch/app/training_flags.hpp>
#include <looptorch/app/weights/first_weights.hpp>
#include <looptorch/app/weights/hub_model.hpp>

#include "../presets.hpp"
#include "train_options.hpp"

#include <string>

namespace spectrogram_vit {

namespace detail {

inline void add_model_flags(looptorch::app::CommandLine& line, TrainOptions& options) {
  line.option(
      "pretrained", "DIR", options.pretrained,
      "Hugging Face folder of a ViT, config.json and model.safetensors, or the name of one that was downloaded");
  add_weights_flags(
      line, options.weights,
      "Into the model\nof --pretrained or --from-scratch, which say the size; names may be this "
      "example's or transformers'");
  line.toggle("from-scratch", options.from_scratch, "begins with random weights, of the preset's size");
  line.option("n-mels", "N", options.n_mels, "mel bins from 20 to 8000 Hz; 0: as the settings say",
              {.min = 0, .max = 1024});
  line.option("image-size", "N", options.image_size,
              "the images' height and width, by interpolated positions; 0: the model's own", {.min = 0});
  line.option("unfreeze", "SCHEDULE", options.unfreeze,
              "EPOCH:BLOCKS,...: blocks of the pretrained model that are trained after so many epochs;\nelse "
              "8:11,12:10-11,16:9-11 for 12 blocks");
  line.option("dropout", "X", options.dropout, "share of activations, of a model from scratch",
              {.min = 0, .max = 0.9});
}

inline void add_recipe_flags(looptorch::app::CommandLine& line, TrainOptions& options) {
  line.option("backbone-rate", "X", options.backbone_rate,
              "learning rate of a pretrained backbone, as a share of the head's", {.above = 0});
  line.option("weight-decay", "X", options.weight_decay, "of AdamW", {.min = 0});
  line.option("patience", "N", options.patience,
              "ends after so many epochs without a better concordance on validation clips, the first of them "
              "when\nall blocks of the schedule are trained",
              {.min = 1});
  line.option("mixup", "X", options.mixup, "alpha of mixup; 0: none", {.min = 0, .max = 100});
  line.toggle("spec-augment", options.spec_augment, "hides frames and mel bins of each training clip");
  line.option("mask-frames", "N", options.mask_frames, "frames of 23 ms that are hidden at most", {.min = 0});
  line.option("mask-bins", "N", options.mask_bins, "mel bins that are hidden at most", {.min = 0});
}

}  // namespace detail

/// Adds all flags of `options` to a command line.
inline void add_flags(looptorch::app::CommandLine& line, TrainOptions& options) {
  using looptorch::app::TrainingFlag;
  line.required("data", "DIR", options.data, "folder of audio/ and the tables");
  line.required("output", "DIR", options.output, "folder for the model and summary.json");
  line.option("generated", "DIR", options.generated, "clips of gan_sample, for training alone");
  line.preset("preset", options.preset, {"base", "small"},
              "defaults of the flags below: ViT-B/16-224, or a model that learns from scratch on a CPU",
              [&options](const std::string& name) {
                options = name == "small" ? TrainOptions::small() : TrainOptions();
              });
  spectrogram_gan::add_gpu_memory_flag(line, options.gpu_memory, "batch size and mel bins");
  line.option("batch-size", "N", options.training.batch_size,
              "clips in one forward pass; 0: as the settings say", {.min = 0, .max = 65536});
  detail::add_model_flags(line, options);
  detail::add_recipe_flags(line, options);
  add_training_flags(
      line, options.training,
      {.without = {TrainingFlag::batch_size},
       .help =
           {{TrainingFlag::epochs, "passes over the training clips"},
            {TrainingFlag::learning_rate, "of AdamW, after the warm-up; it falls to 0 along a cosine"},
            {TrainingFlag::gradient_checkpointing,
             "blocks run a second time in backward: less memory, same result, more time"},
            {TrainingFlag::workers, "threads that read clips"},
            {TrainingFlag::seed, "weights, order, masks and mixtures"},
            {TrainingFlag::cache,
             "where spectrograms are kept, 660 KB a clip at 128 mel bins; else OUTPUT/cache"},
            {TrainingFlag::on_bad_audio,
             "wrong lines, missing files and damaged audio: lists and skips them, or stops at the first"}},
       .fixed_shapes = true});
  accept_hub_name(line, options.pretrained);
  line.on_parsed([&options](const looptorch::app::CommandLine& parsed) { options.check_used(parsed); });
}

}  // namespace spectrogram_vit
