// SPDX-License-Identifier: MIT
// The settings of `whisper_finetune` and their flags.
#pragma once

#include <looptorch/app/command_line.hpp>
#include <looptorch/app/hub_model.hpp>
#include <looptorch/app/memory_flags.hpp>
#include <looptorch/app/run_settings.hpp>
#include <looptorch/app/training_flags.hpp>
#include <looptorch/audio/spec_augment.hpp>
#include <looptorch/base/hash/stable_hash.hpp>
#include <looptorch/memory/checkpoint.hpp>

#include "../clips/corpus.hpp"
#include "../clips/training_text.hpp"
#include "../decoding/recognizer.hpp"
#include "../text/normalizers.hpp"
#include "memory_options.hpp"
#include "training_clips.hpp"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

namespace whisper {

struct FinetuneOptions {
  std::filesystem::path model, output;
  CorpusOptions corpus;  ///< `corpus_options` has the whole
  looptorch::app::TrainingOptions training{.warmup_steps = 5};
  std::string recompute = "none";
  std::int64_t recompute_parts = 1;
  MemoryOptions memory;
  bool fallback = false, spell = false, all_signs = false;
  std::string language = "en", normalizer = "auto", save_dtype = "fp32";
  std::int64_t validate_every = 0, early_stopping = 0;
  std::string best = "wer";
  bool spec_augment = false;
  looptorch::audio::SpecAugmentOptions masks{
      .time_masks = 2, .max_frames = 100, .mel_masks = 2, .max_bins = 27, .max_time_share = 0.2};
  double timestamps_share = 0, prompt_share = 0;
  std::int64_t token_multiple = 0;  ///< 0: of graphs 32, which then have few shapes, else 1
  bool report_sound = true;
  bool has_bf16 = true;  ///< The device computes in bf16; no flag. --fit takes fp16 where it does not.

  /// Throws CommandLineError for flags that contradict each other.
  void check() const {
    corpus_options().check();
    (void)choose_normalizer(normalizer, language);
    if (!corpus.chunking && (timestamps_share > 0 || prompt_share > 0))
      throw looptorch::app::CommandLineError(looptorch::message(
          timestamps_share > 0 ? "--timestamps-share" : "--prompt-share",
          " is of windows, whose times and previous text are known: give --chunking, too"));
    if (early_stopping > 0 && best == "last")
      throw looptorch::app::CommandLineError(
          "--early-stopping waits for a better model, and --best last takes none for better: give wer or loss");
    if (memory.freeze_encoder && recompute == "encoder")
      throw looptorch::app::CommandLineError(
          "--freeze-encoder leaves nothing for --gradient-checkpointing encoder to save: give all or none");
    memory.check(training.mixed_precision());
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

  /// Returns how layers save memory: those that do not recompute keep only their products.
  [[nodiscard]] looptorch::CheckpointOptions checkpoint(bool recomputes) const {
    using Mode = looptorch::CheckpointMode;
    return {.mode = recomputes ? Mode::recompute : Mode::light,
            .random_state = memory.lora_dropout > 0,
            .parts = recompute_parts};
  }

  /// True if losses may be scaled for fp16, which needs all gradients before any is applied.
  [[nodiscard]] bool scales_losses() const {
    using looptorch::app::Precision;
    return training.precision == Precision::fp16 || training.precision == Precision::mixed;
  }

  /// Returns what a card's defaults leave alone: weights in bf16 and --fit set the precision themselves, and
  /// updates in backward can neither scale losses nor be retried.
  [[nodiscard]] looptorch::app::NotByDefault not_by_default() const {
    return {.precision = memory.holds_bf16() || !memory.fit.empty(),
            .fp16 = memory.in_backward(),
            .retry_on_oom = memory.in_backward()};
  }

  /// Returns the flags that lower a peak, for WatchMemory's advice. --fit tries them in order.
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

  /// Returns the number to a multiple of which a batch's tokens are padded.
  [[nodiscard]] std::int64_t padded_to() const {
    constexpr std::int64_t kOfGraphs = 32;
    return token_multiple > 0 ? token_multiple : training.capture ? kOfGraphs : 1;
  }

  /// Returns the random choices for each clip in each epoch.
  [[nodiscard]] TrainingDraws draws() const {
    return {.masks = spec_augment ? std::optional(masks) : std::nullopt,
            .timestamps_share = timestamps_share,
            .prompt_share = prompt_share,
            .token_multiple = padded_to()};
  }

  /// Returns settings that decide what is learnt and are in no policy's state, for RunSettings. `weights`
  /// tells the weights of --model from others (weights_identity).
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

  /// Makes the model decode what it will learn.
  void apply(Recognizer& recognizer) const {
    if (fallback) use_fallback(recognizer);
    if (spell) recognizer.tokenizer.spell_out();
    if (all_signs) allow_all_signs(recognizer.decoding);
    if (corpus.empty_texts) allow_empty_texts(recognizer.decoding);
  }

  /// Returns how many test clips are transcribed at once.
  [[nodiscard]] std::int64_t clips_heard() const { return memory.fit.empty() ? 16 : training.batch_size; }

  /// Returns the encoder as it computes in training.
  [[nodiscard]] ClipEncoder encoder_of(const Recognizer& recognizer) const {
    return ClipEncoder(recognizer.model, training.mixed_precision()
                                             ? std::optional(training.autocast_type().value_or(at::kBFloat16))
                                             : std::nullopt);
  }

  /// Returns which data are used, and how they are read.
  [[nodiscard]] CorpusOptions corpus_options() const {
    auto options = corpus;
    options.on_bad_audio = training.skips_bad_audio() ? OnBadAudio::skip : OnBadAudio::stop;
    options.workers = training.workers, options.seed = training.seed, options.cache = training.cache;
    options.cache_encoder = memory.cache_encoder, options.keeps_cut_off = timestamps_share > 0;
    if (training.quick) options.few = training.few_samples();
    return options;
  }
};

/// Returns a text that differs for other weights: a hash of the beginning of each parameter that adapters do
/// not own.
[[nodiscard]] inline std::string weights_identity(const Whisper& model) {
  constexpr std::int64_t kElements = 4096;
  std::string hashes;
  for (const auto& item : model->named_parameters()) {
    if (item.key().find("lora_") != std::string::npos) continue;
    const auto begin =
        item.value().detach().flatten().narrow(0, 0, std::min(kElements, item.value().numel()));
    const auto bytes = begin.cpu().contiguous();
    hashes += std::to_string(
        looptorch::stable_hash({static_cast<const char*>(bytes.const_data_ptr()), bytes.nbytes()}));
  }
  return looptorch::message("weights ", looptorch::stable_hash(hashes));
}

namespace detail {

inline void add_data_flags(looptorch::app::CommandLine& line, FinetuneOptions& options) {
  auto& corpus = options.corpus;
  line.required("model", "DIR", options.model,
                "Hugging Face folder of the model to begin with, or the name of one that was downloaded");
  line.option("train", "FILE", corpus.train, "manifest of the training clips");
  line.option("validation", "FILE", corpus.validation,
              "manifest of the clips that are measured during training");
  line.option("test", "FILE", corpus.test,
              "manifest of the clips whose word error rate is measured; else validation");
  line.option(
      "transcripts", "PATH", corpus.transcripts,
      "instead of manifests: NAME.json of text, start, duration beside NAME.wav, or a folder of them; "
      "split 80/10/10");
  line.toggle(
      "chunking", corpus.chunking,
      "packs segments of one recording, transcripts' or lines with start and end, into windows of up to "
      "30 s or --max-audio-seconds");
  line.toggle(
      "empty-texts", corpus.empty_texts,
      "learns clips without a text as empty ones, which the model may then hear; else they are wrong lines");
  line.toggle("strict", corpus.strict, "wrong lines stop; else they are listed and left out");
  line.required("output", "DIR", options.output, "folder for the fine-tuned model and summary.json");
  line.choice("save-dtype", options.save_dtype, {"fp32", "fp16", "bf16"},
              "of the weights in --output; 16 bits take half the space");
  line.option("train-subset", "PERCENT", corpus.train_subset, "share of the training clips to use",
              {.max = 100, .above = 0});
  line.option("max-audio-seconds", "S", corpus.max_audio_seconds,
              "length that clips are padded to, at most 30; 0: that of the longest by the files' headers",
              {.min = 0, .max = 30});
}

inline void add_recipe_flags(looptorch::app::CommandLine& line, FinetuneOptions& options) {
  line.option("timestamps-share", "X", options.timestamps_share,
              "share of the windows of --chunking whose target has timestamps, drawn in each epoch",
              {.min = 0, .max = 1});
  line.option("prompt-share", "X", options.prompt_share,
              "share of these windows whose target follows the text before, which is given, not learnt",
              {.min = 0, .max = 1});
  line.option(
      "token-multiple", "N", options.token_multiple,
      "tokens of a batch are padded to a multiple of N; 0: 32 with --capture, whose graphs need few shapes",
      {.min = 0});
  line.toggle(
      "spell", options.spell,
      "learns each character as a token of its own: for what is sent by characters, as Morse code is");
  line.toggle(
      "all-signs", options.all_signs,
      "the model may write signs that it suppresses as no speech, such as / and =, also once it is saved");
  auto& masks = options.masks;
  line.toggle("spec-augment", options.spec_augment, "hides frames and mel bins of each training clip");
  line.option("time-masks", "N", masks.time_masks, "runs of frames that --spec-augment hides", {.min = 0});
  line.option("mask-frames", "N", masks.max_frames,
              "frames of 10 ms in a run at most, and never more than a fifth of the clip", {.min = 0});
  line.option("mel-masks", "N", masks.mel_masks, "runs of mel bins that it hides", {.min = 0});
  line.option("mask-bins", "N", masks.max_bins, "mel bins in a run at most", {.min = 0});
}

inline void add_validation_flags(looptorch::app::CommandLine& line, FinetuneOptions& options) {
  line.option("validate-every", "STEPS", options.validate_every,
              "measures the validation clips so often; 0: after each epoch", {.min = 0});
  line.choice(
      "best", options.best, {"wer", "loss", "last"},
      "which weights are kept: those with the lowest word error rate or loss on the validation clips, or the "
      "last; wer decodes the clips each time");
  line.option("early-stopping", "N", options.early_stopping,
              "ends after so many measurements in a row without a better one; 0: does not", {.min = 0});
}

inline void add_model_flags(looptorch::app::CommandLine& line, FinetuneOptions& options) {
  line.choice("gradient-checkpointing", options.recompute, {"none", "encoder", "all"},
              "layers that run a second time in backward instead of keeping their activations: less memory, "
              "same result, more time; without a value: all",
              "all");
  add_flags(line, options.memory);
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
      {.without = {TrainingFlag::gradient_checkpointing},
       .help =
           {{TrainingFlag::epochs, "passes over the training clips"},
            {TrainingFlag::batch_size, "clips in one forward pass"},
            {TrainingFlag::learning_rate, "of AdamW, after the warm-up"},
            {TrainingFlag::workers, "threads that read audio"},
            {TrainingFlag::seed, "order and choice of the training clips, and what is drawn for each"},
            {TrainingFlag::cache,
             "keeps log-mel frames there for later epochs and runs: 32 kB a second of the clips' common length"},
            {TrainingFlag::on_bad_audio,
             "clips that are damaged, silent, too long, or whose text has no target: listed and left out, "
             "or the first one stops"}},
       .not_by_default = [&options] { return options.not_by_default(); }});
  line.option("prepare-workers", "N", options.corpus.prepare_workers,
              "threads that fill the --cache before training; 0: the first epoch fills it",
              {.min = 0, .max = 1024});
  line.toggle("report-sound", options.report_sound,
              "the report plays the validation clips whose texts it shows, up to a minute in all (2.6 MB)");
  detail::add_recipe_flags(line, options);
  detail::add_validation_flags(line, options);
  detail::add_model_flags(line, options);
  accept_hub_name(line, options.model);
}

}  // namespace whisper
