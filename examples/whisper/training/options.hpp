// SPDX-License-Identifier: MIT
// The settings of `whisper_finetune`. Refuses settings that contradict each other, and derives the options of
// the run's parts from them, such as those of the data. flags.hpp defines the flags.
#pragma once

#include <looptorch/app/flags/flag_values.hpp>
#include <looptorch/app/flags/memory_flags.hpp>
#include <looptorch/app/run/run_settings.hpp>
#include <looptorch/app/training_options.hpp>
#include <looptorch/audio/spec_augment.hpp>
#include <looptorch/base/error.hpp>
#include <looptorch/memory/checkpoint.hpp>

#include "../clips/corpus.hpp"
#include "../clips/training_text.hpp"
#include "../decoding/recognizer.hpp"
#include "../text/normalizers.hpp"
#include "memory_options.hpp"
#include "training_clips.hpp"

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

namespace whisper {

struct FinetuneOptions {
  // ---- Model, data and output ----
  std::filesystem::path model;      ///< folder of the model to begin with, in Hugging Face's layout
  std::filesystem::path output;     ///< folder for the fine-tuned model and summary.json
  CorpusOptions corpus;             ///< set by its flags; corpus_options() adds the rest
  std::string language = "en";      ///< language of lines that name none; "auto": each line names one
  std::string save_dtype = "fp32";  ///< type of the saved weights: "fp32", "fp16" or "bf16"

  // ---- Recipe ----
  looptorch::app::TrainingOptions training{.warmup_steps = 5};
  double timestamps_share = 0;      ///< share of the --chunking windows that learn timestamps, from 0 to 1
  double prompt_share = 0;          ///< share of the --chunking windows given the previous text, from 0 to 1
  std::int64_t token_multiple = 0;  ///< pads a batch's tokens to a multiple of it; 0: see padded_to()
  bool spell = false;               ///< trains on one token a character
  bool all_signs = false;           ///< lets the model write signs that it suppresses, such as / and =
  bool spec_augment = false;        ///< hides frames and mel bins of each training clip by `masks`
  /// The number of masks and their greatest sizes, in frames of 10 ms and in mel bins.
  looptorch::audio::SpecAugmentOptions masks{
      .time_masks = 2, .max_frames = 100, .mel_masks = 2, .max_bins = 27, .max_time_share = 0.2};

  // ---- Validation ----
  std::int64_t validate_every = 0;  ///< steps between validations; 0: an epoch
  std::int64_t early_stopping = 0;  ///< stops after so many validations without a better one; 0: never
  std::string best = "wer";  ///< weights to keep: with the lowest validation "wer" or "loss", or the "last"
  bool fallback = false;     ///< decodes unsure or repetitive texts again at a higher temperature
  std::string normalizer = "auto";  ///< normalises texts for the word error rate; "auto": by language
  bool report_sound = true;         ///< lets the report play the validation clips that it shows

  // ---- Memory ----
  std::string recompute = "none";  ///< --gradient-checkpointing: recomputes "none", "encoder" or "all" layers
  std::int64_t recompute_parts = 1;  ///< parts of a batch that go through a layer one after the other
  MemoryOptions memory;              ///< what is trained, types of weights, the optimizer

  // ---- Set by the program ----
  bool has_bf16 = true;  ///< the device computes in bf16; if not, --fit takes fp16

  /// Throws CommandLineError for flags that contradict each other.
  void check() const {
    check_data();
    check_selection();
    check_memory();
  }

  /// Returns how layers save memory: layers that do not recompute keep only their products.
  [[nodiscard]] looptorch::CheckpointOptions checkpoint(bool recomputes) const {
    using Mode = looptorch::CheckpointMode;
    return {.mode = recomputes ? Mode::recompute : Mode::light,
            .random_state = memory.lora_dropout > 0,
            .parts = recompute_parts};
  }

  /// True if losses may be scaled for fp16. Scaling needs all gradients before any is applied.
  [[nodiscard]] bool scales_losses() const {
    using looptorch::app::Precision;
    return training.precision == Precision::fp16 || training.precision == Precision::mixed;
  }

  /// Returns what the defaults of a GPU must not set: weights in bf16 and --fit choose the precision
  /// themselves, and updates in backward can neither scale losses nor be retried.
  [[nodiscard]] looptorch::app::NotByDefault not_by_default() const {
    return {.precision = memory.holds_bf16() || !memory.fit.empty(),
            .fp16 = memory.in_backward(),
            .retry_on_oom = memory.in_backward()};
  }

  /// Returns the flags that lower the peak of memory, for WatchMemory's advice. --fit tries them in order.
  [[nodiscard]] static looptorch::app::MemoryFlags memory_flags() {
    return {.recomputation = "--gradient-checkpointing all",
            .optimizer = "--optimizer adamw8bit",
            .frozen = "--freeze-encoder"};
  }

  [[nodiscard]] std::filesystem::path snapshots() const { return output / "snapshots"; }

  /// True if validation also decodes the clips.
  [[nodiscard]] bool measures_error_rate() const { return best == "wer"; }
  /// Returns the metric that ranks models.
  [[nodiscard]] std::string metric() const {
    return measures_error_rate() ? "validation.wer" : "validation.loss";
  }

  /// Returns N, where a batch's tokens are padded to a multiple of N.
  [[nodiscard]] std::int64_t padded_to() const {
    constexpr std::int64_t kOfGraphs = 32;
    return token_multiple > 0 ? token_multiple : training.capture ? kOfGraphs : 1;
  }

  /// Returns the training clips of `data`, with random choices for each clip in each epoch. Both arguments
  /// must outlive it.
  [[nodiscard]] TrainingClips clips_of(const Corpus& data, const Recognizer& recognizer) const {
    return {data.train,
            data.windows,
            recognizer.tokenizer,
            recognizer.decoding,
            {.masks = spec_augment ? std::optional(masks) : std::nullopt,
             .timestamps_share = timestamps_share,
             .prompt_share = prompt_share,
             .token_multiple = padded_to()}};
  }

  /// Returns the settings that decide what is learnt and are in no policy's state, for RunSettings. `weights`
  /// identifies the weights of --model (weights_identity).
  [[nodiscard]] std::map<std::string, std::string> settings(const Corpus& data,
                                                            const std::string& weights) const {
    using looptorch::app::setting;
    const auto masked = looptorch::message(masks.time_masks, " x ", masks.max_frames, " frames, ",
                                           masks.mel_masks, " x ", masks.max_bins, " bins");
    std::map<std::string, std::string> all{{"--all-signs", setting(all_signs)},
                                           {"--best", best},
                                           {"--chunking", setting(corpus.chunking)},
                                           {"--early-stopping", setting(early_stopping)},
                                           {"--empty-texts", setting(corpus.empty_texts)},
                                           {"--fallback", setting(fallback)},
                                           {"--language", language},
                                           {"--max-audio-seconds", setting(data.max_seconds)},
                                           {"--model", weights},
                                           {"--normalizer", normalizer},
                                           {"--prompt-share", setting(prompt_share)},
                                           {"--token-multiple", setting(padded_to())},
                                           {"--spec-augment", spec_augment ? masked : "off"},
                                           {"--spell", setting(spell)},
                                           {"--timestamps-share", setting(timestamps_share)},
                                           {"--validate-every", setting(validate_every)}};
    if (memory.lora > 0)
      all["--lora"] =
          looptorch::message(memory.lora, ", alpha ", memory.lora_alpha, ", dropout ", memory.lora_dropout,
                             ", ", memory.lora_patterns, memory.int8_base ? ", --int8-base" : "");
    return all;
  }

  /// True if the model may write what its folder's settings suppress.
  [[nodiscard]] bool changes_suppressed() const { return all_signs || corpus.empty_texts; }

  /// Makes the model decode the kind of texts that it will learn.
  void apply(Recognizer& recognizer) const {
    if (fallback) use_fallback(recognizer);
    if (spell) recognizer.tokenizer.spell_out();
    if (all_signs) allow_all_signs(recognizer.decoding);
    if (corpus.empty_texts) allow_empty_texts(recognizer.decoding);
  }

  /// Returns how many test clips are transcribed at once.
  [[nodiscard]] std::int64_t clips_at_once() const { return memory.fit.empty() ? 16 : training.batch_size; }

  /// Returns the encoder with training's precision.
  [[nodiscard]] ClipEncoder encoder_of(const Recognizer& recognizer) const {
    return ClipEncoder(recognizer.model, training.mixed_precision()
                                             ? std::optional(training.autocast_type().value_or(at::kBFloat16))
                                             : std::nullopt);
  }

  /// Returns the options of the data: which are used, and how they are read.
  [[nodiscard]] CorpusOptions corpus_options() const {
    auto options = corpus;
    options.on_bad_audio = training.skips_bad_audio() ? OnBadAudio::skip : OnBadAudio::stop;
    options.workers = training.workers, options.seed = training.seed, options.cache = training.cache;
    options.cache_encoder = memory.cache_encoder, options.keeps_cut_off = timestamps_share > 0;
    if (training.quick) options.few = training.few_samples();
    return options;
  }

 private:
  void check_data() const {
    corpus_options().check();
    (void)choose_normalizer(normalizer, language);
    if (!corpus.chunking && (timestamps_share > 0 || prompt_share > 0))
      throw looptorch::app::CommandLineError(
          looptorch::message(timestamps_share > 0 ? "--timestamps-share" : "--prompt-share",
                             " needs windows, which keep times and previous text: give --chunking, too"));
  }

  void check_selection() const {
    if (early_stopping > 0 && best == "last")
      throw looptorch::app::CommandLineError(
          "--early-stopping waits for a better model, so it needs --best wer or --best loss");
  }

  void check_memory() const {
    if (memory.freeze_encoder && recompute == "encoder")
      throw looptorch::app::CommandLineError(
          "--freeze-encoder leaves nothing for --gradient-checkpointing encoder to save: give all or none");
    memory.check(training.mixed_precision());
    if (memory.lora > 0 && save_dtype != "fp32")
      throw looptorch::app::CommandLineError("--save-dtype " + save_dtype +
                                             " has no effect with --lora, whose adapters are saved in fp32");
    if (memory.cache_encoder && training.cache.empty())
      throw looptorch::app::CommandLineError("--cache-encoder fills a cache: name it by --cache");
    if (memory.cache_encoder && spec_augment)
      throw looptorch::app::CommandLineError(
          "--cache-encoder needs the same frames of a clip in each epoch, and --spec-augment hides others: "
          "leave out one of the two");
    if (memory.in_backward() && scales_losses())
      throw looptorch::app::CommandLineError(
          "--update-in-backward cannot scale losses, as fp16 needs it: give --bf16 instead of --fp16 or "
          "--mixed-precision");
    if (memory.in_backward() && training.retry_on_oom)
      throw looptorch::app::CommandLineError(
          "--retry-on-oom does a step again from its beginning, and --update-in-backward has changed weights "
          "by then: leave out one of the two");
  }
};

}  // namespace whisper
