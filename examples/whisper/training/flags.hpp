// SPDX-License-Identifier: MIT
// Defines the flags of `whisper_finetune` and their texts in --help, by topic: data, recipe, validation,
// model, memory. The flags set the options of options.hpp and memory_options.hpp.
#pragma once

#include <looptorch/app/command_line.hpp>
#include <looptorch/app/flag_effects.hpp>
#include <looptorch/app/training_flags.hpp>
#include <looptorch/app/weights/hub_model.hpp>

#include "options.hpp"

namespace whisper {

namespace detail {

inline void add_data_flags(looptorch::app::CommandLine& line, FinetuneOptions& options) {
  auto& corpus = options.corpus;
  line.required(
      "model", "DIR", options.model,
      "folder of the model to begin with, in Hugging Face's layout, or the name of a downloaded one");
  line.option("train", "FILE", corpus.train, "manifest of the training clips");
  line.option("validation", "FILE", corpus.validation, "manifest of the clips measured during training");
  line.option("test", "FILE", corpus.test,
              "manifest of the clips measured before and after training [those of --validation]");
  line.option("transcripts", "PATH", corpus.transcripts,
              "instead of manifests: NAME.json (text, start, duration) beside NAME.wav, or a folder of such "
              "pairs; split 80/10/10");
  line.toggle("chunking", corpus.chunking,
              "packs the segments of a recording into windows of up to 30 s or --max-audio-seconds");
  line.toggle("empty-texts", corpus.empty_texts,
              "trains on clips without a text, as silence; else such lines are wrong");
  line.toggle("strict", corpus.strict,
              "stops at the first wrong line; else wrong lines are listed and skipped");
  line.required("output", "DIR", options.output, "folder for the fine-tuned model and summary.json");
  line.choice("save-dtype", options.save_dtype, {"fp32", "fp16", "bf16"},
              "type of the saved weights; 16 bits take half the space; adapters of --lora are saved in fp32");
  line.option("train-subset", "PERCENT", corpus.train_subset, "share of the training clips to use",
              {.max = 100, .above = 0});
  line.option("max-audio-seconds", "S", corpus.max_audio_seconds,
              "length that clips are padded to, at most 30; 0: that of the longest clip",
              {.min = 0, .max = 30});
  line.option("prepare-workers", "N", options.corpus.prepare_workers,
              "threads that fill the --cache before training; 0: the first epoch fills it",
              {.min = 0, .max = 1024});
}

inline void add_recipe_flags(looptorch::app::CommandLine& line, FinetuneOptions& options) {
  line.option("timestamps-share", "X", options.timestamps_share,
              "share of the windows of --chunking that learn timestamps, drawn in each epoch",
              {.min = 0, .max = 1});
  line.option("prompt-share", "X", options.prompt_share,
              "share of these windows that are given the previous text", {.min = 0, .max = 1});
  line.option("token-multiple", "N", options.token_multiple,
              "pads a batch's tokens to a multiple of N; 0: 32 with --capture, else 1", {.min = 0});
  line.toggle("spell", options.spell, "trains on one token a character, for example for Morse code");
  line.toggle("all-signs", options.all_signs,
              "lets the model write signs that it suppresses, such as / and =, also once it is saved");
  auto& masks = options.masks;
  line.toggle("spec-augment", options.spec_augment, "masks frames and mel bins of each training clip");
  line.option("time-masks", "N", masks.time_masks, "masks over time in a clip", {.min = 0});
  line.option("mask-frames", "N", masks.max_frames,
              "frames of 10 ms in such a mask at most, and at most a fifth of the clip", {.min = 0});
  line.option("mel-masks", "N", masks.mel_masks, "masks over mel bins in a clip", {.min = 0});
  line.option("mask-bins", "N", masks.max_bins, "mel bins in such a mask at most", {.min = 0});
  require_effect(
      line, {"time-masks", "mask-frames", "mel-masks", "mask-bins"},
      [&options] { return options.spec_augment; }, "without --spec-augment");
}

inline void add_validation_flags(looptorch::app::CommandLine& line, FinetuneOptions& options) {
  line.option(
      "validate-every", "STEPS", options.validate_every,
      "steps between measurements of the validation clips; 0: an epoch; the last step is always measured",
      {.min = 0});
  line.choice(
      "best", options.best, {"wer", "loss", "last"},
      "weights to keep: those with the lowest word error rate or loss in validation, or the last; wer "
      "decodes the clips each time");
  line.option("early-stopping", "N", options.early_stopping,
              "stops after N measurements in a row without a better one; 0: never", {.min = 0});
  line.toggle("fallback", options.fallback,
              "decodes unsure or repetitive texts again at a higher temperature, as whisper_transcribe does; "
              "else greedily, once");
  line.toggle("whole-windows", options.corpus.whole_windows,
              "measures word error rates on clips padded to 30 s, as whisper_transcribe pads them");
  line.option("normalizer", "NAME", options.normalizer,
              "normalizer of the word error rate: english (Whisper's), marks (keeps combining marks), "
              "characters (counts them instead of words), none, or auto: by each clip's language");
  line.toggle("report-sound", options.report_sound,
              "lets the report play the validation clips that it shows, up to a minute in all (2.6 MB)");
  require_effect(
      line, {"report-sound"}, [&options] { return options.training.report; }, "without --report");
}

inline void add_model_flags(looptorch::app::CommandLine& line, FinetuneOptions& options) {
  line.option(
      "language", "CODE", options.language,
      "language of lines without a \"language\", as en or English; auto: each line has one, and the model is "
      "not told it when measured; English-only models use it for the normaliser alone");
  accept_language_name(line, options.language);
  line.choice("gradient-checkpointing", options.recompute, {"none", "encoder", "all"},
              "layers that are recomputed in backward: less memory, more time; without a value: all", "all");
  line.flag("no-gradient-checkpointing", options.recompute, "none", "recomputes no layer");
  line.option("recompute-parts", "N", options.recompute_parts,
              "parts into which a layer splits a batch, one after the other: less memory", {.min = 1});
}

inline void add_memory_flags(looptorch::app::CommandLine& line, MemoryOptions& options) {
  line.choice(
      "optimizer", options.optimizer, {"adamw", "adamw8bit", "adamwbf16", "adafactor"},
      "AdamW with moments in fp32, in 8 bits, or in bf16 with bf16 weights; Adafactor keeps almost none");
  line.toggle("bf16-weights", options.bf16_weights,
              "holds and computes all weights in bf16; adapters of --lora stay fp32");
  line.choice("update-in-backward", options.update_in_backward, {"none", "sums", "moments"},
              "applies and frees each gradient as soon as it exists, clipped by its own norm; accumulates in "
              "bf16 sums, or in the moments (unclipped); without a value: sums",
              "sums");
  line.toggle("freeze-encoder", options.freeze_encoder,
              "trains the decoder alone: the encoder keeps no activations, gradients or moments");
  line.toggle("cache-encoder", options.cache_encoder,
              "keeps a frozen encoder's output of each clip in --cache: later epochs skip the encoder");
  line.option("fit", "SIZE", options.fit,
              "chooses the cheapest of these flags, recomputation, precision and batch size that fits into "
              "SIZE, as 4GB; without a value: into the device's free memory")
      .implied(kFitFree);
  line.option("lora", "RANK", options.lora,
              "trains low-rank adapters only, and saves them in peft's layout; 0: trains the weights",
              {.min = 0, .max = 4096});
  line.option("lora-alpha", "X", options.lora_alpha, "scales an adapter's output by X / RANK", {.above = 0});
  line.option("lora-dropout", "X", options.lora_dropout, "dropout of an adapter's inputs",
              {.min = 0, .max = 0.99});
  line.toggle("int8-base", options.int8_base,
              "keeps the weights below --lora in 8 bits; only adapters are saved");
  line.option("lora-patterns", "NAMES", options.lora_patterns,
              "full names of layers that get adapters, separated by commas; * stands for any characters");
}

}  // namespace detail

/// Adds all flags of `options` to a command line.
inline void add_flags(looptorch::app::CommandLine& line, FinetuneOptions& options) {
  using enum looptorch::app::TrainingFlag;
  detail::add_data_flags(line, options);
  add_training_flags(line, options.training,
                     {.without = {gradient_checkpointing},
                      .help = {{epochs, "passes over the training clips"},
                               {batch_size, "clips in one forward pass"},
                               {learning_rate, "learning rate of the optimizer after the warm-up"},
                               {workers, "threads that read audio"},
                               {seed, "seed of the order and choice of the training clips, and of masks"},
                               {cache,
                                "folder for log-mel frames, for later epochs and runs: 32 kB a second of "
                                "each clip, padded"},
                               {on_bad_audio,
                                "clips that are damaged, silent, too long, or without a target: "
                                "lists and skips them, or stops at the first"}},
                      .not_by_default = [&options] { return options.not_by_default(); }});
  detail::add_recipe_flags(line, options);
  detail::add_validation_flags(line, options);
  detail::add_model_flags(line, options);
  detail::add_memory_flags(line, options.memory);
  accept_hub_name(line, options.model);
}

}  // namespace whisper
