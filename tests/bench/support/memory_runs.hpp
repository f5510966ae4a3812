// SPDX-License-Identifier: MIT
// Sixty small runs whose memory is predicted and measured: a plain network, Whisper, KonkaniVani, the ViT and
// the GAN, with random weights. They differ in size, batch, accumulation, recomputation, bf16, averages,
// frozen parts and optimizer. Each is given to `visit(name, make)`, and `make(device, use)` calls
// `use(trainer, batches)`: easy batches, then the hardest, all in host memory. An epoch has three windows,
// since the third is the first in which two sums of losses are held.
#pragma once

#include <looptorch/memory/measure/host_memory.hpp>
#include <looptorch/policies.hpp>
#include <looptorch/trainer.hpp>

#include <konkanivani/clips/batch.hpp>
#include <konkanivani/model/model.hpp>
#include <konkanivani/training/objective.hpp>
#include <spectrogram_gan_vit/gan/model.hpp>
#include <spectrogram_gan_vit/gan/objectives.hpp>
#include <spectrogram_gan_vit/vit/model.hpp>
#include <whisper/model/model.hpp>

#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

namespace looptorch_bench {

namespace kv = konkanivani;
namespace lt = looptorch;
namespace sg = spectrogram_gan;
namespace sv = spectrogram_vit;

inline const lt::WatchMemory kWatch{.out = nullptr};

/// Returns what `make` does, in host memory where a CPU stands for a device.
template <class Make>
auto on_host(const Make& make) {
  const lt::HostMemory::PlaceScope place(lt::HostMemory::Place::host);
  return make();
}

inline std::string words(std::initializer_list<std::pair<bool, const char*>> flags) {
  std::string text;
  for (const auto& [on, word] : flags)
    if (on) text += std::string(", ") + word;
  return text;
}

// ---- A plain network ----

template <class Optimizer, class Options, class Visit>
void plain_runs(const std::string& optimizer_name, const Options& options, const Visit& visit) {
  for (const std::int64_t width : {128, 512})
    for (const bool averages : {false, true})
      visit("plain " + std::to_string(width) + ", " + optimizer_name + words({{averages, "averages"}}),
            [&](at::Device device, const auto& use) {
              torch::nn::Sequential net(torch::nn::Linear(64, width), torch::nn::GELU(),
                                        torch::nn::Linear(width, width), torch::nn::GELU(),
                                        torch::nn::Linear(width, 8));
              net->to(device);
              Optimizer optimizer(net->parameters(), options);
              const auto objective = [](torch::nn::Sequential& net, const at::Tensor& x) {
                return net->forward(x).square().mean();
              };
              lt::Trainer trainer(net, optimizer, objective, lt::When{averages, lt::AverageWeights{}},
                                  lt::ClipGradNorm{1.0}, kWatch);
              use(trainer, on_host([] {
                    return std::vector{at::randn({16, 64}), at::randn({64, 64}), at::randn({256, 64})};
                  }));
            });
}

// ---- Whisper ----

inline lt::CheckpointOptions recompute_if(bool chosen) {
  return {.mode = chosen ? lt::CheckpointMode::recompute : lt::CheckpointMode::light};
}

struct Speech {
  at::Tensor mel_BMT, tokens_BL, labels_BL;
};

template <class Visit>
void whisper_runs(const Visit& visit) {
  const whisper::WhisperConfig config{.vocab_size = 2000,
                                      .d_model = 96,
                                      .encoder_layers = 3,
                                      .decoder_layers = 3,
                                      .encoder_attention_heads = 4,
                                      .decoder_attention_heads = 4,
                                      .encoder_ffn_dim = 384,
                                      .decoder_ffn_dim = 384,
                                      .max_source_positions = 300};
  const auto batch = [](std::int64_t clips, std::int64_t tokens) {
    return Speech{at::randn({clips, 80, 600}), at::randint(0, 2000, {clips, tokens}, at::kLong),
                  at::randint(0, 2000, {clips, tokens}, at::kLong)};
  };
  for (const std::int64_t clips : {1, 4})
    for (const std::string recompute : {"none", "encoder", "all"})
      for (const bool bf16 : {false, true})
        visit("whisper, " + std::to_string(clips) + " clips, recomputed: " + recompute +
                  words({{bf16, "bf16"}}),
              [&](at::Device device, const auto& use) {
                whisper::Whisper model(config);
                model->to(device);
                lt::FusedAdamW optimizer(model->parameters(), {.lr = 1e-4});
                const auto objective = [](whisper::Whisper& model, const Speech& batch) {
                  return model->loss(batch.mel_BMT, batch.tokens_BL, batch.labels_BL);
                };
                lt::Trainer trainer(
                    model, optimizer, objective, lt::Accumulate<2>{},
                    lt::When{bf16, lt::Autocast<lt::bf16>{}},
                    lt::Checkpointed<whisper::EncoderLayer>{recompute_if(recompute != "none")},
                    lt::Checkpointed<whisper::DecoderLayer>{recompute_if(recompute == "all")}, kWatch);
                use(trainer, on_host([&] {
                      return std::vector{batch(clips, 8),  batch(clips, 16), batch(clips, 16),
                                         batch(clips, 16), batch(clips, 60), batch(clips, 60)};
                    }));
              });
}

// ---- KonkaniVani ----

inline kv::Batch make_clips(std::int64_t clips, std::int64_t frames, std::int64_t characters) {
  std::vector<std::int64_t> ids;
  for (std::int64_t i = 0; i < characters; ++i) ids.push_back(kv::kFirstCharacter + i % 20);
  const auto rows = static_cast<std::size_t>(clips);
  return {.mel_BMF = at::randn({clips, 80, frames}),
          .lengths_B = at::full({clips}, frames, at::kLong),
          .indices = {},
          .targets = kv::make_targets(std::vector(rows, ids)),
          .texts = std::vector<std::string>(rows)};
}

template <class Visit>
void konkanivani_runs(const Visit& visit) {
  for (const std::int64_t clips : {2, 6})
    for (const bool recompute : {false, true})
      for (const bool bf16 : {false, true})
        for (const bool averages : {false, true})
          visit("konkanivani, " + std::to_string(clips) + " clips" +
                    words({{recompute, "recomputed"}, {bf16, "bf16"}, {averages, "averages"}}),
                [&](at::Device device, const auto& use) {
                  kv::KonkaniVani model(kv::ModelConfig{.vocabulary = 30,
                                                        .d_model = 64,
                                                        .encoder_layers = 3,
                                                        .decoder_layers = 2,
                                                        .dropout = 0.1});
                  model->to(device);
                  lt::FusedAdamW optimizer(model->parameters(), {.lr = 1e-4});
                  lt::Trainer trainer(
                      model, optimizer, kv::JointLoss{}, lt::When{bf16, lt::Autocast<lt::bf16>{}},
                      lt::When{recompute, lt::Checkpointed<kv::ConformerBlock>{}},
                      lt::When{averages, lt::AverageWeights{}}, lt::ClipGradNorm{5.0}, kWatch);
                  use(trainer, on_host([&] {
                        return std::vector{make_clips(clips, 64, 8), make_clips(clips, 160, 12),
                                           make_clips(clips, 320, 40)};
                      }));
                });
}

// ---- Music ----

struct Music {
  at::Tensor spectrograms_B1MF, conditions_B2;
};

inline Music make_music(std::int64_t clips, std::int64_t frames) {
  return {at::randn({clips, 1, 64, frames}), at::rand({clips, 2}) * 2 - 1};
}

template <class Visit>
void vit_runs(const Visit& visit) {
  for (const std::int64_t clips : {2, 8})
    for (const std::string saving : {"plain", "recomputed", "frozen"})
      for (const std::int64_t accumulate : {1, 2})
        visit("vit, " + std::to_string(clips) + " clips, " + saving + ", accumulate " +
                  std::to_string(accumulate),
              [&](at::Device device, const auto& use) {
                sv::ViT model{sv::ViTConfig{.hidden_size = 96,
                                            .layers = 4,
                                            .heads = 4,
                                            .intermediate_size = 384,
                                            .n_mels = 64,
                                            .image = {64, 256}}};
                model->to(device);
                if (saving == "frozen")
                  for (const auto& parameter : model->backbone->parameters())
                    parameter.set_requires_grad(false);
                lt::FusedAdamW optimizer(model->parameters(), {.lr = 1e-4});
                const auto objective = [](sv::ViT& net, const Music& batch) {
                  return at::mse_loss(net(batch.spectrograms_B1MF), batch.conditions_B2);
                };
                lt::Trainer trainer(model, optimizer, objective, lt::Accumulate<>{accumulate},
                                    lt::When{saving == "recomputed", lt::Checkpointed<sv::ViTBlock>{}},
                                    lt::ClipGradNorm{1.0}, kWatch);
                use(trainer, on_host([&] {
                      std::vector batches(4, make_music(1, 400));
                      batches.insert(batches.end(), 2, make_music(clips, 400));
                      return batches;
                    }));
              });
}

template <class Visit>
void gan_runs(const Visit& visit) {
  for (const std::int64_t clips : {2, 4})
    for (const bool averages : {false, true})
      visit("gan, " + std::to_string(clips) + " clips" + words({{averages, "averages"}}),
            [&](at::Device device, const auto& use) {
              auto config = sg::small_size();
              config.frames = 200, config.channels = 16;
              sg::Gan gan(config);
              gan->to(device);
              lt::FusedAdam of_generator(gan->generator->parameters(), {.lr = 2e-4});
              lt::FusedAdam of_discriminator(gan->discriminator->parameters(), {.lr = 1e-4});
              const sg::GameOptions game{.mismatched = 0.5, .auxiliary = 1};
              lt::Trainer trainer(gan, lt::Update{of_discriminator, sg::DiscriminatorObjective{game}},
                                  lt::Update{of_generator, sg::GeneratorObjective{game}}, lt::Accumulate<2>{},
                                  lt::When{averages, lt::AverageWeights{}}, lt::ClipGradNorm{1.0}, kWatch);
              use(trainer, on_host([&] { return std::vector(4, make_music(clips, 200)); }));
            });
}

template <class Visit>
void all_runs(const Visit& visit) {
  plain_runs<lt::FusedSGD>("SGD", lt::FusedSGDOptions{.lr = 1e-3}, visit);
  plain_runs<lt::FusedSGD>("SGD with momentum", lt::FusedSGDOptions{.lr = 1e-3, .momentum = 0.9}, visit);
  plain_runs<lt::FusedAdam>("Adam", lt::FusedAdamOptions{}, visit);
  plain_runs<torch::optim::AdamW>("LibTorch's AdamW", torch::optim::AdamWOptions(1e-3), visit);
  whisper_runs(visit);
  konkanivani_runs(visit);
  vit_runs(visit);
  gan_runs(visit);
}

}  // namespace looptorch_bench
