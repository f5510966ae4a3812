// SPDX-License-Identifier: MIT
// Candidates for memory_advice: KonkaniVani's three sizes, with the Trainer of konkanivani_train and its
// preset "original".
//
// Shapes: B batch, M mel bins, F mel frames.
#pragma once

#include "candidate.hpp"
#include "dry_run.hpp"

#include <konkanivani/clips/batch.hpp>
#include <konkanivani/model/model.hpp>
#include <konkanivani/training/flags.hpp>
#include <konkanivani/training/objective.hpp>
#include <konkanivani/training/train_options.hpp>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

namespace looptorch_bench {

inline constexpr std::int64_t kVocabulary = 80, kCharactersASecond = 15;

[[nodiscard]] inline konkanivani::TrainOptions konkanivani_options(const std::string& command) {
  const auto options =
      options_of<konkanivani::TrainOptions>(command, "--data DIR --output DIR", konkanivani::add_flags);
  options.check();
  return options;
}

/// Returns clips of the greatest length that konkanivani_train takes.
[[nodiscard]] inline konkanivani::Batch longest_batch(const konkanivani::TrainOptions& options) {
  namespace kv = konkanivani;
  const auto clips = options.training.batch_size;
  const auto frames = kv::padded_frames(std::llround(std::ceil(100 * options.max_seconds)));
  const auto characters = std::llround(static_cast<double>(kCharactersASecond) * options.max_seconds);
  std::vector<std::int64_t> ids;
  for (std::int64_t i = 0; i < characters; ++i)
    ids.push_back(kv::kFirstCharacter + 7 * i % (kVocabulary - kv::kFirstCharacter));
  const auto rows = static_cast<std::size_t>(clips);
  return {.mel_BMF = at::randn({clips, kv::ModelConfig{}.mel_bins, frames}),
          .lengths_B = at::full({clips}, frames, at::kLong),
          .indices = {},
          .targets = kv::make_targets(std::vector(rows, ids)),
          .texts = std::vector<std::string>(rows)};
}

[[nodiscard]] inline std::int64_t konkanivani_needs(const std::string& command, std::int64_t allowed) {
  namespace kv = konkanivani;
  const auto options = konkanivani_options(command);
  const auto& training = options.training;
  kv::KonkaniVani model(options.model(kVocabulary));
  lt::FusedAdamW optimizer(model->parameters(), {.lr = training.learning_rate, .weight_decay = 1e-6});
  const kv::JointLoss objective{options.loss()};
  lt::Trainer trainer(model, optimizer, objective, lt::Accumulate<>{training.gradient_accumulation},
                      precision_of(training),
                      lt::When{training.gradient_checkpointing, lt::Checkpointed<kv::ConformerBlock>{}},
                      lt::ClipGradNorm{5.0}, lt::ScheduleLr{.decay = lt::LinearDecay{}});
  return peak_of(
      trainer, [&] { return longest_batch(options); }, allowed);
}

/// Returns the savings of a program that can recompute its only kind of layer, or none.
[[nodiscard]] inline std::vector<Saving> plain_savings(bool recomputes) {
  const std::string recompute = "--gradient-checkpointing", half = "--mixed-precision";
  if (!recomputes) return {{"none", ""}, {"16 bits", half}};
  return {{"none", ""},
          {"blocks recomputed", recompute},
          {"16 bits", half},
          {"blocks recomputed, 16 bits", recompute + " " + half}};
}

[[nodiscard]] inline std::vector<Candidate> konkanivani_candidates() {
  namespace kv = konkanivani;
  std::vector<Candidate> candidates;
  for (const auto& size :
       {kv::original_size(kVocabulary), kv::optimized_size(kVocabulary), kv::minimal_size(kVocabulary)}) {
    const auto width = std::to_string(size.d_model), encoder = std::to_string(size.encoder_layers),
               decoder = std::to_string(size.decoder_layers);
    const auto command = "konkanivani_train --preset original --d-model " + width + " --encoder-layers " +
                         encoder + " --decoder-layers " + decoder;
    const auto frames = longest_batch(konkanivani_options(command + " --batch-size 1")).mel_BMF.size(2);
    candidates.push_back({.name = "KonkaniVani " + width + "/" + encoder + "+" + decoder,
                          .command = command,
                          .input = "clips of 20 s, " + std::to_string(frames) +
                                   " mel frames that are not subsampled, with 15 characters a second",
                          .savings = plain_savings(true),
                          .window =
                              [](const std::string& command) {
                                const auto training = konkanivani_options(command).training;
                                return Window{training.batch_size, training.gradient_accumulation};
                              },
                          .needed = konkanivani_needs});
  }
  const std::string two = "--batch-size 1 --gradient-accumulation 2";
  candidates.back().checks = {"--batch-size 2", two + " --gradient-checkpointing",
                              two + " --gradient-checkpointing --mixed-precision"};
  return candidates;
}

}  // namespace looptorch_bench
