// SPDX-License-Identifier: MIT
// Holds preflight to account: for 60 configurations of the examples' models and a plain one, the peak that it
// predicts beside the peak of the fit that follows, whose one hard batch stands among easier ones. Then the
// fit runs once more, held to a cap for which the preflight said that it fits. Sizes, batches, accumulation,
// recomputation, bf16, averages, frozen parts, optimizers; random weights, CPU, one thread.
//
//   memory_prediction   prints a JSON object a configuration; fails if a prediction is off by more than 5 %,
//   half of
//                       them by more than 2 %, or if what was said to fit ran out of memory
#include <looptorch/policies.hpp>
#include <looptorch/preflight.hpp>
#include <looptorch/trainer.hpp>

#include <ATen/Parallel.h>

#include <konkanivani/data.hpp>
#include <konkanivani/model.hpp>
#include <spectrogram_gan_vit/gan/model.hpp>
#include <spectrogram_gan_vit/gan/objectives.hpp>
#include <spectrogram_gan_vit/vit/model.hpp>
#include <whisper/model/model.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

namespace kv = konkanivani;
namespace lt = looptorch;
namespace sg = spectrogram_gan;
namespace sv = spectrogram_vit;

namespace {

const lt::WatchMemory kWatch{.out = nullptr};
constexpr std::int64_t kRoom = 100'000'000'000;

std::vector<double> errors;
bool kept_word = true;

/// Measures one configuration; `batches` holds easy ones and, at its end, the hard one.
template <class Trainer, class Batch>
void measure(const std::string& name, Trainer& trainer, const std::vector<Batch>& batches) {
  const std::vector<Batch> hard{batches.back()};
  const auto report = lt::preflight(trainer, hard, {.cap = kRoom, .evaluate = false});
  trainer.fit(batches, {.epochs = 3});
  const double measured = static_cast<double>(trainer.template policy<lt::WatchMemory>().peak().bytes);
  const double predicted = static_cast<double>(report.needed);
  errors.push_back(std::abs(predicted / measured - 1));

  const std::int64_t cap = std::llround(predicted / 0.9) + 1;
  auto& memory = lt::HostMemory::counted();
  if (lt::preflight(trainer, hard, {.cap = cap, .evaluate = false}).fits) {
    memory.set_limit(cap);  // of what is counted, with all that stands beside the run
    try {
      trainer.fit(batches);
    } catch (const c10::OutOfMemoryError&) {
      kept_word = false;
      std::fprintf(stderr, "%s: was said to fit, and ran out of memory\n", name.c_str());
    }
    memory.set_limit(lt::HostMemory::kNoLimit);
  }
  std::printf(
      "{\"name\": \"%s\", \"value\": %.3f, \"unit\": \"MB\", \"peer\": \"measured\", \"peer_value\": %.3f}\n",
      name.c_str(), predicted / 1e6, measured / 1e6);
  std::fflush(stdout);
}

std::string words(std::initializer_list<std::pair<bool, const char*>> flags) {
  std::string text;
  for (const auto& [on, word] : flags)
    if (on) text += std::string(", ") + word;
  return text;
}

// ---- A plain network ----

template <class Optimizer, class Options>
void measure_plain(const std::string& optimizer_name, const Options& options) {
  for (const std::int64_t width : {128, 512})
    for (const bool averages : {false, true}) {
      torch::nn::Sequential net(torch::nn::Linear(64, width), torch::nn::GELU(),
                                torch::nn::Linear(width, width), torch::nn::GELU(),
                                torch::nn::Linear(width, 8));
      Optimizer optimizer(net->parameters(), options);
      const auto objective = [](torch::nn::Sequential& net, const at::Tensor& x) {
        return net->forward(x).square().mean();
      };
      lt::Trainer trainer(net, optimizer, objective, lt::When{averages, lt::AverageWeights{}},
                          lt::ClipGradNorm{1.0}, kWatch);
      const std::vector<at::Tensor> batches{at::randn({16, 64}), at::randn({64, 64}), at::randn({256, 64})};
      measure("plain " + std::to_string(width) + ", " + optimizer_name + words({{averages, "averages"}}),
              trainer, batches);
    }
}

// ---- Whisper ----

lt::CheckpointOptions recompute_if(bool chosen) {
  return {.mode = chosen ? lt::CheckpointMode::recompute : lt::CheckpointMode::light};
}

struct Speech {
  at::Tensor mel_BMT, tokens_BL, labels_BL;
};

void measure_whisper() {
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
      for (const bool bf16 : {false, true}) {
        whisper::Whisper model(config);
        lt::FusedAdamW optimizer(model->parameters(), {.lr = 1e-4});
        const auto objective = [](whisper::Whisper& model, const Speech& batch) {
          return model->loss(batch.mel_BMT, batch.tokens_BL, batch.labels_BL);
        };
        lt::Trainer trainer(
            model, optimizer, objective, lt::Accumulate<2>{}, lt::When{bf16, lt::Autocast<lt::bf16>{}},
            lt::Checkpointed<whisper::EncoderLayer>{recompute_if(recompute != "none")},
            lt::Checkpointed<whisper::DecoderLayer>{recompute_if(recompute == "all")}, kWatch);
        const std::vector<Speech> batches{batch(clips, 8), batch(clips, 16), batch(clips, 60),
                                          batch(clips, 60)};
        measure("whisper, " + std::to_string(clips) + " clips, recomputed: " + recompute +
                    words({{bf16, "bf16"}}),
                trainer, batches);
      }
}

// ---- KonkaniVani ----

kv::Batch make_clips(std::int64_t clips, std::int64_t frames, std::int64_t characters) {
  std::vector<std::int64_t> ids;
  for (std::int64_t i = 0; i < characters; ++i) ids.push_back(kv::kFirstCharacter + i % 20);
  const auto rows = static_cast<std::size_t>(clips);
  return {.mel_BMF = at::randn({clips, 80, frames}),
          .lengths_B = at::full({clips}, frames, at::kLong),
          .frames = std::vector(rows, kv::encoder_frames(frames, 4)),
          .indices = {},
          .targets = kv::make_targets(std::vector(rows, ids)),
          .texts = std::vector<std::string>(rows)};
}

void measure_konkanivani() {
  for (const std::int64_t clips : {2, 6})
    for (const bool recompute : {false, true})
      for (const bool bf16 : {false, true})
        for (const bool averages : {false, true}) {
          kv::KonkaniVani model(kv::ModelConfig{
              .vocabulary = 30, .d_model = 64, .encoder_layers = 3, .decoder_layers = 2, .dropout = 0.1});
          lt::FusedAdamW optimizer(model->parameters(), {.lr = 1e-4});
          const auto objective = [](kv::KonkaniVani& net, const kv::Batch& batch) {
            return kv::joint_loss(net, net->encode(batch.mel_BMF, batch.lengths_B), batch.frames,
                                  batch.targets, {});
          };
          lt::Trainer trainer(model, optimizer, objective, lt::When{bf16, lt::Autocast<lt::bf16>{}},
                              lt::When{recompute, lt::Checkpointed<kv::ConformerBlock>{}},
                              lt::When{averages, lt::AverageWeights{}}, lt::ClipGradNorm{5.0}, kWatch);
          const std::vector<kv::Batch> batches{make_clips(clips, 64, 8), make_clips(clips, 160, 12),
                                               make_clips(clips, 320, 40)};
          measure("konkanivani, " + std::to_string(clips) + " clips" +
                      words({{recompute, "recomputed"}, {bf16, "bf16"}, {averages, "averages"}}),
                  trainer, batches);
        }
}

// ---- Music ----

struct Music {
  at::Tensor spectrograms_B1MF, conditions_B2;
};

Music make_music(std::int64_t clips, std::int64_t frames) {
  return {at::randn({clips, 1, 64, frames}), at::rand({clips, 2}) * 2 - 1};
}

void measure_vit() {
  for (const std::int64_t clips : {2, 8})
    for (const std::string saving : {"plain", "recomputed", "frozen"})
      for (const std::int64_t accumulate : {1, 2}) {
        sv::ViT model{sv::ViTConfig{.hidden_size = 96,
                                    .layers = 4,
                                    .heads = 4,
                                    .intermediate_size = 384,
                                    .n_mels = 64,
                                    .image = {64, 256}}};
        if (saving == "frozen")
          for (const auto& parameter : model->backbone->parameters()) parameter.set_requires_grad(false);
        lt::FusedAdamW optimizer(model->parameters(), {.lr = 1e-4});
        const auto objective = [](sv::ViT& net, const Music& batch) {
          return at::mse_loss(net(batch.spectrograms_B1MF), batch.conditions_B2);
        };
        lt::Trainer trainer(model, optimizer, objective, lt::Accumulate<>{accumulate},
                            lt::When{saving == "recomputed", lt::Checkpointed<sv::ViTBlock>{}},
                            lt::ClipGradNorm{1.0}, kWatch);
        const std::vector<Music> batches{make_music(1, 400), make_music(1, 400), make_music(clips, 400),
                                         make_music(clips, 400)};
        measure("vit, " + std::to_string(clips) + " clips, " + saving + ", accumulate " +
                    std::to_string(accumulate),
                trainer, batches);
      }
}

void measure_gan() {
  for (const std::int64_t clips : {2, 4})
    for (const bool averages : {false, true}) {
      auto config = sg::small_size();
      config.frames = 200, config.channels = 16;
      sg::Gan gan(config);
      lt::FusedAdam of_generator(gan->generator->parameters(), {.lr = 2e-4});
      lt::FusedAdam of_discriminator(gan->discriminator->parameters(), {.lr = 1e-4});
      const sg::GameOptions game{.mismatched = 0.5, .auxiliary = 1};
      lt::Trainer trainer(gan, lt::Update{of_discriminator, sg::DiscriminatorObjective{game}},
                          lt::Update{of_generator, sg::GeneratorObjective{game}}, lt::Accumulate<2>{},
                          lt::When{averages, lt::AverageWeights{}}, lt::ClipGradNorm{1.0}, kWatch);
      const std::vector<Music> batches(4, make_music(clips, 200));
      measure("gan, " + std::to_string(clips) + " clips" + words({{averages, "averages"}}), trainer, batches);
    }
}

}  // namespace

int main() {
  at::set_num_threads(1);
  torch::manual_seed(1);
  lt::HostMemory::counted();
  measure_plain<lt::FusedSGD>("SGD", lt::FusedSGDOptions{.lr = 1e-3});
  measure_plain<lt::FusedSGD>("SGD with momentum", lt::FusedSGDOptions{.lr = 1e-3, .momentum = 0.9});
  measure_plain<lt::FusedAdam>("Adam", lt::FusedAdamOptions{});
  measure_plain<torch::optim::AdamW>("LibTorch's AdamW", torch::optim::AdamWOptions(1e-3));
  measure_whisper();
  measure_konkanivani();
  measure_vit();
  measure_gan();
  std::sort(errors.begin(), errors.end());
  const double median = errors[errors.size() / 2], worst = errors.back();
  std::fprintf(stderr, "%zu configurations: off by %.2f %% in the median, %.2f %% at worst\n", errors.size(),
               100 * median, 100 * worst);
  return kept_word && median <= 0.02 && worst <= 0.05 ? 0 : 1;
}
