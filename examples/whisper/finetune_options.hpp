// SPDX-License-Identifier: MIT
// The settings of `whisper_finetune` and their flags.
#pragma once

#include <looptorch/app/command_line.hpp>
#include <looptorch/app/training_flags.hpp>
#include <looptorch/memory/checkpoint.hpp>

#include "corpus.hpp"
#include "normalizers.hpp"

#include <cstdint>
#include <filesystem>
#include <string>

namespace whisper {

struct FinetuneOptions {
  std::filesystem::path model, output;
  CorpusOptions corpus;  ///< `corpus_options` has the whole
  looptorch::app::TrainingOptions training{.warmup_steps = 5};
  std::string recompute = "none";
  std::int64_t recompute_parts = 1;
  bool freeze_encoder = false;
  bool fallback = false;
  std::string language = "en", normalizer = "auto", save_dtype = "fp32";

  /// Throws CommandLineError for flags that contradict each other.
  void check() const {
    corpus.check();
    (void)choose_normalizer(normalizer, language);
    if (freeze_encoder && recompute == "encoder")
      throw looptorch::app::CommandLineError(
          "--freeze-encoder leaves nothing for --gradient-checkpointing encoder to save: give all or none");
  }

  /// Returns how layers save memory: those that do not recompute keep their products alone.
  [[nodiscard]] looptorch::CheckpointOptions checkpoint(bool recomputes) const {
    using Mode = looptorch::CheckpointMode;
    return {
        .mode = recomputes ? Mode::recompute : Mode::light, .random_state = false, .parts = recompute_parts};
  }

  [[nodiscard]] std::filesystem::path snapshots() const { return output / "snapshots"; }

  /// Returns which data are used, and how they are read.
  [[nodiscard]] CorpusOptions corpus_options() const {
    auto options = corpus;
    options.on_bad_audio = training.skips_bad_audio() ? OnBadAudio::skip : OnBadAudio::stop;
    options.workers = training.workers, options.seed = training.seed;
    return options;
  }
};

namespace detail {

inline void add_data_flags(looptorch::app::CommandLine& line, FinetuneOptions& options) {
  auto& corpus = options.corpus;
  line.required("model", "DIR", options.model, "Hugging Face folder of the model to begin with");
  line.option("train", "FILE", corpus.train, "manifest of the training clips");
  line.option("validation", "FILE", corpus.validation, "manifest of the clips whose loss each epoch reports");
  line.option("test", "FILE", corpus.test,
              "manifest of the clips whose word error rate is measured; else validation");
  line.option(
      "transcripts", "PATH", corpus.transcripts,
      "instead of manifests: NAME.json of text, start, duration beside NAME.wav, or a folder of them; "
      "split 80/10/10");
  line.toggle("strict", corpus.strict, "wrong lines stop; else they are listed and left out");
  line.required("output", "DIR", options.output, "folder for the fine-tuned model and summary.json")
      .alias("output-dir");
  line.choice("save-dtype", options.save_dtype, {"fp32", "fp16", "bf16"},
              "of the weights in --output; 16 bits take half the space");
  line.option("train-subset", "PERCENT", corpus.train_subset, "share of the training clips to use",
              {.max = 100, .above = 0});
  line.option("max-audio-seconds", "S", corpus.max_audio_seconds,
              "length that clips are padded to, at most 30; 0: that of the longest by the files' headers",
              {.min = 0, .max = 30});
}

inline void add_model_flags(looptorch::app::CommandLine& line, FinetuneOptions& options) {
  line.choice("gradient-checkpointing", options.recompute, {"none", "encoder", "all"},
              "layers that run a second time in backward instead of keeping their activations: less memory, "
              "same result, more time; without a value: all",
              "all");
  line.toggle("freeze-encoder", options.freeze_encoder,
              "trains the decoder alone: the encoder keeps no activations, gradients or moments");
  line.flag("no-gradient-checkpointing", options.recompute, "none", "no layer runs a second time as a whole");
  line.option("recompute-parts", "N", options.recompute_parts,
              "parts that a batch's clips pass through a layer in, one after the other: less memory",
              {.min = 1});
  line.option(
      "language", "CODE", options.language,
      "what is spoken where a line has no \"language\" of its own; auto: every line has one, and word "
      "error rates are of a model that is not told; English-only models ignore it");
  line.toggle(
      "fallback", options.fallback,
      "word error rates as whisper_transcribe decodes: again at a higher temperature where a text repeats "
      "itself or is unsure; else greedily, once");
  line.toggle(
      "whole-windows", options.corpus.whole_windows,
      "word error rates on clips padded to 30 s, as whisper_transcribe pads them, whatever the length for training");
  line.option(
      "normalizer", "NAME", options.normalizer,
      "of the word error rate: english (Whisper's), marks (keeps combining marks), characters (counts them instead of words), none, or auto: "
      "by each clip's language");
}

}  // namespace detail

/// Adds all flags of `options` to a command line.
inline void add_flags(looptorch::app::CommandLine& line, FinetuneOptions& options) {
  using looptorch::app::TrainingFlag;
  detail::add_data_flags(line, options);
  add_training_flags(
      line, options.training,
      {.without = {TrainingFlag::gradient_checkpointing, TrainingFlag::cache},
       .help = {
           {TrainingFlag::epochs, "passes over the training clips"},
           {TrainingFlag::batch_size, "clips in one forward pass"},
           {TrainingFlag::learning_rate, "of AdamW, after the warm-up"},
           {TrainingFlag::workers, "threads that read audio"},
           {TrainingFlag::seed, "order and choice of the training clips"},
           {TrainingFlag::on_bad_audio,
            "clips that are damaged, silent, too long, or whose text has no target: listed and left out, "
            "or the first one stops"}}});
  detail::add_model_flags(line, options);
}

}  // namespace whisper
