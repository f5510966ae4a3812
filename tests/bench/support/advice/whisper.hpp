// SPDX-License-Identifier: MIT
// Candidates for memory_advice: Whisper from tiny to large-v3, with the Trainer of whisper_finetune.
//
// Shapes: B batch, M mel bins, T mel frames, L tokens.
#pragma once

#include "candidate.hpp"
#include "dry_run.hpp"

#include <whisper/model/model.hpp>
#include <whisper/training/flags.hpp>
#include <whisper/training/plan/memory_plan.hpp>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace looptorch_bench {

struct WhisperBatch {
  at::Tensor mel_BMT, tokens_BL, labels_BL;
};

/// Returns random clips of 30 s.
[[nodiscard]] inline WhisperBatch batch_of(const whisper::WhisperConfig& config, std::int64_t clips,
                                           std::int64_t tokens) {
  return {at::randn({clips, config.num_mel_bins, 2 * config.max_source_positions}),
          at::randint(config.vocab_size, {clips, tokens}, at::kLong),
          at::randint(config.vocab_size, {clips, tokens}, at::kLong)};
}

/// Returns the longest samples that whisper_finetune trains on: windows of 30 s, and as many tokens as the
/// model has positions, the last of which is only predicted.
[[nodiscard]] inline WhisperBatch longest_batch(const whisper::WhisperConfig& config, std::int64_t clips) {
  return batch_of(config, clips, config.max_target_positions - 1);
}

[[nodiscard]] inline whisper::FinetuneOptions whisper_options(const std::string& command) {
  auto options = options_of<whisper::FinetuneOptions>(
      command, "--model DIR --output DIR --train FILE --validation FILE",
      [](looptorch::app::CommandLine& line, whisper::FinetuneOptions& options) {
        whisper::add_flags(line, options);
      });
  options.check();
  return options;
}

/// Makes the Trainer of whisper_finetune for a model of random weights, and calls `use(trainer, model)`.
template <class Use>
void with_whisper_trainer(const whisper::WhisperConfig& config, const whisper::FinetuneOptions& options,
                          const Use& use) {
  const auto& training = options.training;
  const auto& memory = options.memory;
  whisper::Whisper model(config);
  model->to(memory.dtype());
  memory.apply(model);
  const auto optimizer = memory.make_optimizer(model, training.learning_rate);
  const auto objective = [](whisper::Whisper& model, const WhisperBatch& batch) {
    return model->loss(batch.mel_BMT, batch.tokens_BL, batch.labels_BL);
  };
  lt::Trainer trainer(
      model, *optimizer, objective, lt::Accumulate<>{training.gradient_accumulation},
      lt::When{training.mixed_precision() && !memory.in_backward(),
               lt::Autocast<>{.type = training.autocast_type(), .keep_casts = options.recompute != "all"}},
      lt::When{training.mixed_precision() && memory.in_backward(), lt::Autocast<lt::bf16>{}},
      lt::Checkpointed<whisper::EncoderLayer>{options.checkpoint(options.recompute != "none")},
      lt::Checkpointed<whisper::DecoderLayer>{options.checkpoint(options.recompute == "all")},
      lt::When{!memory.in_backward(), lt::ClipGradNorm{1.0}},
      lt::When{memory.update_in_backward == "sums", lt::UpdateInBackward<lt::SumsInBf16>{.max_norm = 1.0}},
      lt::When{memory.update_in_backward == "moments", lt::UpdateInBackward<lt::SumsInMoments>{}},
      lt::ScheduleLr{.decay = lt::LinearDecay{}, .warmup_steps = training.warmup_steps});
  use(trainer, model);
}

[[nodiscard]] inline std::int64_t whisper_needs(const whisper::WhisperConfig& config,
                                                const std::string& command, std::int64_t allowed) {
  const auto options = whisper_options(command);
  std::int64_t needed = 0;
  with_whisper_trainer(config, options, [&](auto& trainer, whisper::Whisper&) {
    needed = peak_of(
        trainer, [&] { return longest_batch(config, options.training.batch_size); }, allowed);
  });
  return needed;
}

[[nodiscard]] inline whisper::WhisperConfig whisper_size(std::int64_t width, std::int64_t encoder_layers,
                                                         std::int64_t decoder_layers) {
  whisper::WhisperConfig config;
  config.d_model = width;
  config.encoder_layers = encoder_layers, config.decoder_layers = decoder_layers;
  config.encoder_attention_heads = config.decoder_attention_heads = width / 64;
  config.encoder_ffn_dim = config.decoder_ffn_dim = 4 * width;
  return config;
}

/// Returns the published sizes, multilingual; the English-only ones have one token less.
[[nodiscard]] inline std::vector<std::pair<std::string, whisper::WhisperConfig>> whisper_sizes() {
  auto large = whisper_size(1280, 32, 32), turbo = whisper_size(1280, 32, 4);
  for (auto* config : {&large, &turbo}) config->num_mel_bins = 128, config->vocab_size = 51866;
  return {{"tiny", whisper_size(384, 4, 4)},
          {"base", whisper_size(512, 6, 6)},
          {"small", whisper_size(768, 12, 12)},
          {"medium", whisper_size(1024, 24, 24)},
          {"large-v3", large},
          {"large-v3-turbo", turbo}};
}

/// Returns what `whisper_finetune --fit` tries, in its order, with frozen encoders before adapters.
[[nodiscard]] inline std::vector<Saving> whisper_savings() {
  const std::string frozen = "--freeze-encoder", recomputed = frozen + " --gradient-checkpointing all";
  const whisper::FinetuneOptions given = whisper_options("whisper_finetune");
  std::vector<Saving> all;
  for (const whisper::Saving& saving : whisper::savings()) {
    whisper::FinetuneOptions chosen = given;
    saving.apply(chosen);
    const std::string flags = whisper::flags_between(given, chosen);
    const int rank = saving.trained == whisper::Trained::all_weights ? 0
                     : saving.trained == whisper::Trained::adapters  ? 2
                                                                     : 3;
    all.push_back({.words = flags.empty() ? "none" : saving.words, .flags = flags, .rank = rank});
  }
  all.push_back({"encoder frozen", frozen, 1});
  all.push_back(
      {"encoder frozen, decoder recomputed, 8-bit moments", recomputed + " --optimizer adamw8bit", 1});
  all.push_back({"encoder frozen, decoder recomputed, weights in bf16, Adafactor",
                 recomputed + " --optimizer adafactor --bf16-weights", 1});
  return all;
}

[[nodiscard]] inline std::vector<Candidate> whisper_candidates() {
  std::vector<Candidate> candidates;
  for (const auto& [name, config] : whisper_sizes())
    candidates.push_back(
        {.name = "Whisper " + name,
         .command = "whisper_finetune",
         .input = "clips of 30 s, " + std::to_string(2 * config.max_source_positions) + " mel frames, with " +
                  std::to_string(config.max_target_positions) + " tokens each, prompt and end included",
         .savings = whisper_savings(),
         .window =
             [](const std::string& command) {
               const auto training = whisper_options(command).training;
               return Window{training.batch_size, training.gradient_accumulation};
             },
         .needed = [config = config](
                       const std::string& command,
                       std::int64_t allowed) { return whisper_needs(config, command, allowed); }});
  const std::string two = "--batch-size 1 --gradient-accumulation 2";
  candidates[0].checks = {
      "--batch-size 2",           two + " --gradient-checkpointing encoder",
      two + " --mixed-precision", two + " --gradient-checkpointing all --mixed-precision",
      two + " --freeze-encoder",  two + " --gradient-checkpointing all --optimizer adafactor --bf16-weights"};
  candidates[1].checks = {two, two + " --gradient-checkpointing all"};
  return candidates;
}

}  // namespace looptorch_bench
