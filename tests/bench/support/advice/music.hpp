// SPDX-License-Identifier: MIT
// Candidates for memory_advice: the spectrogram GAN and ViT-B/16, with the Trainers of gan_train and
// vit_train.
//
// Shapes: B batch, M mel bins, F mel frames.
#pragma once

#include "candidate.hpp"
#include "dry_run.hpp"
#include "konkanivani.hpp"

#include <spectrogram_gan_vit/gan/balance.hpp>
#include <spectrogram_gan_vit/gan/model.hpp>
#include <spectrogram_gan_vit/gan/objectives.hpp>
#include <spectrogram_gan_vit/gan/train_options.hpp>
#include <spectrogram_gan_vit/vit/flags.hpp>
#include <spectrogram_gan_vit/vit/model.hpp>
#include <spectrogram_gan_vit/vit/objective.hpp>
#include <spectrogram_gan_vit/vit/train_options.hpp>
#include <spectrogram_gan_vit/vit/unfreezing.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace looptorch_bench {

inline constexpr const char* kMusicFolders = "--data DIR --output DIR";

[[nodiscard]] inline spectrogram_gan::Batch music_batch(std::int64_t clips, std::int64_t mels) {
  return {at::randn({clips, 1, mels, spectrogram_gan::GanConfig{}.frames}), at::rand({clips, 2}) * 2 - 1};
}

[[nodiscard]] inline std::int64_t gan_needs(const std::string& command, std::int64_t allowed) {
  namespace sg = spectrogram_gan;
  auto options = options_of<sg::TrainOptions>(command, kMusicFolders, sg::add_flags);
  const auto config = sg::choose_sizes(options);
  const auto& training = options.training;
  sg::Gan gan(config);
  lt::FusedAdam of_generator(gan->generator->parameters(),
                             {.lr = options.generator_rate, .betas = {0.5, 0.999}});
  lt::FusedAdam of_discriminator(gan->discriminator->parameters(),
                                 {.lr = options.discriminator_rate, .betas = {0.5, 0.999}});
  lt::Trainer trainer(
      gan,
      lt::Update{of_discriminator,
                 sg::DiscriminatorObjective{options.game()},
                 {.name = "discriminator", .when = sg::UnlessWinning{options.accuracy}}},
      lt::Update{of_generator, sg::GeneratorObjective{options.game()}, {.name = "generator"}},
      lt::Accumulate<>{training.gradient_accumulation}, precision_of(training), lt::ClipGradNorm{1.0},
      lt::AverageWeights{.rule = lt::Ema{.decay = options.average, .warmup = true}, .update = "generator"});
  return peak_of(
      trainer, [&] { return music_batch(training.batch_size, config.n_mels); }, allowed);
}

[[nodiscard]] inline std::int64_t vit_needs(const std::string& command, std::int64_t allowed) {
  namespace sv = spectrogram_vit;
  auto options = options_of<sv::TrainOptions>(command, kMusicFolders, sv::add_flags);
  options.complete();
  const auto& training = options.training;
  auto config = sv::size_named(options.preset);
  config.n_mels = options.n_mels;
  sv::ViT model(config);
  if (!options.from_scratch) sv::freeze_backbone(model);
  lt::FusedAdamW optimizer(model->parameters(),
                           {.lr = training.learning_rate, .weight_decay = options.weight_decay});
  lt::Trainer trainer(model, optimizer, sv::ViTObjective{options.mixup},
                      lt::Accumulate<>{training.gradient_accumulation}, precision_of(training),
                      lt::When{training.gradient_checkpointing, lt::Checkpointed<sv::ViTBlock>{}},
                      lt::ClipGradNorm{1.0}, lt::ScheduleLr{.decay = lt::CosineDecay{}},
                      lt::UnfreezeAt(options.unfreezing(config.layers)));
  return peak_of(
      trainer, [&] { return music_batch(training.batch_size, options.n_mels); }, allowed);
}

[[nodiscard]] inline Window gan_window(const std::string& command) {
  namespace sg = spectrogram_gan;
  auto options = options_of<sg::TrainOptions>(command, kMusicFolders, sg::add_flags);
  (void)sg::choose_sizes(options);
  return {options.training.batch_size, options.training.gradient_accumulation};
}

[[nodiscard]] inline Window vit_window(const std::string& command) {
  namespace sv = spectrogram_vit;
  auto options = options_of<sv::TrainOptions>(command, kMusicFolders, sv::add_flags);
  options.complete();
  return {options.training.batch_size, options.training.gradient_accumulation};
}

/// Returns the flag by which both programs have settings for a card of so many GB.
[[nodiscard]] inline std::string gpu_memory_flag(std::int64_t gigabytes) {
  if (gigabytes < spectrogram_gan::kGpuPresets[0].gigabytes) return {};
  return "--gpu-memory " + std::to_string(gigabytes);
}

[[nodiscard]] inline std::vector<Candidate> music_candidates() {
  const std::string input = "clips of 30 s, 1292 mel frames of 128 bins",
                    two = "--batch-size 3 --gradient-accumulation 2";
  const auto vit = [&](const std::string& name, const std::string& flags, std::vector<std::string> checks) {
    return Candidate{.name = "ViT-B/16, " + name,
                     .command = "vit_train " + flags,
                     .input = input + ", as images of 224 x 224",
                     .savings = plain_savings(true),
                     .checks = std::move(checks),
                     .window = vit_window,
                     .needed = vit_needs,
                     .preset = gpu_memory_flag};
  };
  return {{.name = "GAN",
           .command = "gan_train",
           .input = input,
           .least = 2,  // --mismatched takes the emotion of another clip
           .savings = plain_savings(false),
           .checks = {"--batch-size 6 --gradient-accumulation 1",
                      "--batch-size 3 --gradient-accumulation 1 --mixed-precision"},
           .window = gan_window,
           .needed = gan_needs,
           .preset = gpu_memory_flag},
          vit("from scratch", "--from-scratch", {two, two + " --gradient-checkpointing --mixed-precision"}),
          vit("pretrained, its last three blocks unfrozen in the end", "--pretrained DIR", {two})};
}

}  // namespace looptorch_bench
