// SPDX-License-Identifier: MIT
// Measures the host's time of a step: the examples' nets at their real depth, so narrow that arithmetic is
// next to nothing, in one thread on a CPU; forward, backward and FusedAdamW's update by a Trainer.
//
//   host_time   reads lines "NET MODE" from stdin, makes steps, and answers each with a JSON object: us and
//               operator calls a step, and the parameters' elements; after a line "bytes -" also the most
//               bytes of tensors that a step adds, which slows down what follows; host_time.py, the peer,
//               sends them and takes turns. Modes: plain, light, recomputed, bf16 (autocast), exported (the
//               net goes out by export_model and comes in as an ExportedModel) and unexported (the net with
//               the same loss).
#include <looptorch/export/export_model.hpp>
#include <looptorch/exported/exported_model.hpp>
#include <looptorch/memory/measure/memory_counter.hpp>
#include <looptorch/trainer.hpp>

#include "support/interleaved.hpp"

#include <ATen/Parallel.h>
#include <ATen/record_function.h>

#include <konkanivani/clips/batch.hpp>
#include <konkanivani/model/model.hpp>
#include <konkanivani/training/objective.hpp>
#include <spectrogram_gan_vit/gan/model.hpp>
#include <spectrogram_gan_vit/gan/objectives.hpp>
#include <spectrogram_gan_vit/vit/model.hpp>
#include <unistd.h>
#include <whisper/model/model.hpp>

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <iostream>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace lt = looptorch;

namespace {

constexpr std::int64_t kWidth = 32, kHeads = 2, kBatch = 2, kTokens = 8, kFrames = 16, kVocabulary = 64;
constexpr int kWarmup = 3, kSteps = 10;

std::int64_t calls = 0;
bool counts_bytes = false;

/// Counts operators of this thread, in which a CPU's backward runs, too.
std::unique_ptr<at::ObserverContext> count_call(const at::RecordFunction& function) {
  calls += std::string_view(function.name()).starts_with("aten::");
  return nullptr;
}

lt::CheckpointOptions checkpoint_of(const std::string& mode, bool random_state) {
  return {.mode = mode == "light"        ? lt::CheckpointMode::light
                  : mode == "recomputed" ? lt::CheckpointMode::recompute
                                         : lt::CheckpointMode::off,
          .random_state = random_state};
}

/// Makes steps by a Trainer, and returns what they cost as a JSON object.
template <class Trainer, class Batch>
std::string cost_of(Trainer& trainer, const Batch& batch, std::int64_t elements) {
  for (int i = 0; i < kWarmup; ++i) trainer.step(batch);
  const auto begin = bench::Clock::now();
  for (int i = 0; i < kSteps; ++i) trainer.step(batch);
  const double us = bench::microseconds(bench::Clock::now() - begin) / kSteps;
  calls = 0;
  const auto handle = at::addThreadLocalCallback(at::RecordFunctionCallback(&count_call));
  trainer.step(batch);
  at::removeCallback(handle);
  std::int64_t bytes = 0;
  if (counts_bytes) {
    const lt::MemoryCounter counter(at::kCPU);
    const std::int64_t before = counter.take().allocated;
    trainer.step(batch);
    bytes = counter.read().peak - before;
  }
  trainer.finish();
  return lt::message("{\"us\": ", us, ", \"calls\": ", calls, ", \"elements\": ", elements,
                     ", \"bytes\": ", bytes, "}");
}

/// Returns how many numbers are trained.
std::int64_t elements_of(const torch::nn::Module& model) {
  std::int64_t elements = 0;
  for (const at::Tensor& parameter : model.parameters())
    elements += parameter.requires_grad() * parameter.numel();
  return elements;
}

/// Trains a model for some steps. `Layers` are those that can be recomputed, with the same random numbers if
/// they draw some.
template <class... Layers, class Model, class Objective, class Batch>
std::string train(Model model, const Objective& objective, const Batch& batch, const std::string& mode,
                  [[maybe_unused]] bool random_state = false) {
  lt::FusedAdamW adamw(model->parameters(), {.lr = 1e-5});
  lt::Trainer trainer(model, adamw, objective, lt::When{mode == "bf16", lt::Autocast<lt::bf16>{}},
                      lt::Checkpointed<Layers>{checkpoint_of(mode, random_state)}...);
  return cost_of(trainer, batch, elements_of(*model));
}

/// Trains a net for some steps as itself or as the program that it is exported as; `loss` is that of the
/// scores which `forward(model, inputs...)` returns. `Layers` could be recomputed, and are not.
template <class... Layers, class Model, class Forward, class Inputs, class Loss>
std::string train_whole(Model model, bool exported, const Forward& forward, const Inputs& inputs,
                        const Loss& loss) {
  const auto objective_of = [&](const auto& scores_of) {
    return [&](auto& trained, const Inputs& batch) {
      return loss(std::apply([&](const auto&... each) { return scores_of(trained, each...); }, batch));
    };
  };
  if (!exported) return train<Layers...>(model, objective_of(forward), inputs, "plain");
  const auto file =
      std::filesystem::temp_directory_path() / ("host_time_" + std::to_string(getpid()) + ".pt2");
  lt::export_model(model, forward, inputs, file);
  lt::ExportedModel program(file);
  std::filesystem::remove(file);
  const auto run = [](lt::ExportedModel& net, const auto&... in) { return net->forward(in...).front(); };
  return train<>(program, objective_of(run), inputs, "plain");
}

struct Speech {
  at::Tensor mel_BMT, tokens_BL, labels_BL;
};

std::string train_whisper(const std::string& mode) {
  whisper::WhisperConfig config;
  config.vocab_size = kVocabulary;
  config.d_model = kWidth;
  config.encoder_layers = config.decoder_layers = 12;
  config.encoder_attention_heads = config.decoder_attention_heads = kHeads;
  config.encoder_ffn_dim = config.decoder_ffn_dim = 4 * kWidth;
  config.max_source_positions = kFrames, config.max_target_positions = kTokens;
  config.pad_token_id = config.bos_token_id = config.eos_token_id = 0;
  config.decoder_start_token_id = 1;
  const Speech batch{at::randn({kBatch, config.num_mel_bins, 2 * kFrames}),
                     at::randint(2, kVocabulary, {kBatch, kTokens}, at::kLong),
                     at::randint(2, kVocabulary, {kBatch, kTokens}, at::kLong)};
  const auto objective = [](whisper::Whisper& model, const Speech& speech) {
    return model->loss(speech.mel_BMT, speech.tokens_BL, speech.labels_BL);
  };
  if (mode == "exported" || mode == "unexported")
    return train_whole<whisper::EncoderLayer, whisper::DecoderLayer>(
        whisper::Whisper(config), mode == "exported",
        [](whisper::Whisper& model, const auto&... in) { return model->forward(in...); },
        std::tuple(batch.mel_BMT, batch.tokens_BL),
        [&](const at::Tensor& scores_BLV) {
          return at::cross_entropy_loss(scores_BLV.flatten(0, 1), batch.labels_BL.flatten());
        });
  return train<whisper::EncoderLayer, whisper::DecoderLayer>(whisper::Whisper(config), objective, batch,
                                                             mode);
}

struct Pictures {
  at::Tensor images_BCHW, labels_B2;
};

std::string train_vit(const std::string& mode) {
  const spectrogram_vit::ViTConfig config{.hidden_size = kWidth,
                                          .heads = kHeads,
                                          .intermediate_size = 4 * kWidth,
                                          .image = {32, 32},
                                          .patch = {8, 8}};
  const Pictures batch{at::randn({kBatch, 3, 32, 32}), at::randn({kBatch, kWidth})};
  const auto objective = [](spectrogram_vit::ViTBackbone& model, const Pictures& pictures) {
    return at::mse_loss(model->forward(pictures.images_BCHW).select(1, 0), pictures.labels_B2);
  };
  if (mode == "exported" || mode == "unexported")
    return train_whole<spectrogram_vit::ViTBlock>(
        spectrogram_vit::ViTBackbone(config), mode == "exported",
        [](spectrogram_vit::ViTBackbone& model, const at::Tensor& images) { return model->forward(images); },
        std::tuple(batch.images_BCHW),
        [&](const at::Tensor& states) { return at::mse_loss(states.select(1, 0), batch.labels_B2); });
  return train<spectrogram_vit::ViTBlock>(spectrogram_vit::ViTBackbone(config), objective, batch, mode);
}

std::string train_konkanivani(const std::string& mode) {
  const konkanivani::ModelConfig config{
      .vocabulary = kVocabulary, .d_model = kWidth, .heads = kHeads, .kernel = 3};
  std::vector<std::vector<std::int64_t>> texts(kBatch);
  for (std::int64_t i = 0; i < kBatch * (kTokens - 1); ++i)
    texts[static_cast<std::size_t>(i % kBatch)].push_back(konkanivani::kFirstCharacter + 7 * i % 50);
  const std::int64_t mel_frames = config.subsampling * kFrames;
  const konkanivani::Batch batch{.mel_BMF = at::randn({kBatch, config.mel_bins, mel_frames}),
                                 .lengths_B = at::full({kBatch}, mel_frames, at::kLong),
                                 .indices = {},
                                 .targets = konkanivani::make_targets(texts),
                                 .texts = std::vector<std::string>(texts.size())};
  return train<konkanivani::ConformerBlock>(konkanivani::KonkaniVani(config), konkanivani::JointLoss{}, batch,
                                            mode, /*random_state=*/true);
}

struct Spectrograms {
  at::Tensor spectrograms_B1MF, conditions_B2;
};

/// Trains both players in each step, with the program's default objectives.
std::string train_gan(const std::string& mode) {
  spectrogram_gan::Gan gan(spectrogram_gan::GanConfig{
      .n_mels = 16, .frames = 32, .latent = 8, .channels = kWidth, .seed_rows = 2, .seed_columns = 2});
  const Spectrograms batch{at::randn({kBatch, 1, 16, 32}), at::rand({kBatch, 2}) * 2 - 1};
  const spectrogram_gan::GameOptions game{.mismatched = 0.5, .auxiliary = 1};
  lt::FusedAdam of_generator(gan->generator->parameters(), {.lr = 2e-4, .betas = {0.5, 0.999}});
  lt::FusedAdam of_discriminator(gan->discriminator->parameters(), {.lr = 1e-4, .betas = {0.5, 0.999}});
  lt::Trainer trainer(gan, lt::Update{of_discriminator, spectrogram_gan::DiscriminatorObjective{game}},
                      lt::Update{of_generator, spectrogram_gan::GeneratorObjective{game}},
                      lt::When{mode == "bf16", lt::Autocast<lt::bf16>{}});
  return cost_of(trainer, batch, elements_of(*gan));
}

}  // namespace

int main() {
  at::set_num_threads(1);
  torch::manual_seed(1);
  const std::map<std::string, std::function<std::string(const std::string&)>> nets = {
      {"whisper", train_whisper}, {"vit", train_vit}, {"konkanivani", train_konkanivani}, {"gan", train_gan}};
  for (std::string net, mode; std::cin >> net >> mode;) {
    counts_bytes |= net == "bytes";
    if (net == "bytes") continue;
    std::puts(nets.at(net)(mode).c_str());
    std::fflush(stdout);
  }
}
