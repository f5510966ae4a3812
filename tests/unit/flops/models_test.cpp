// SPDX-License-Identifier: MIT
// The FLOPs of the examples' models in a step of a Trainer, beside those that PyTorch's FlopCounterMode
// counts for transformers' models and nets of the same shapes (tests/parity/flops.py).
//
// Tests flops: flop_counter
#include "support/precompiled.hpp"

#include <looptorch/base/files/file.hpp>
#include <looptorch/base/json/json.hpp>
#include <looptorch/flops/flop_counter.hpp>
#include <looptorch/trainer.hpp>

#include <konkanivani/model/model.hpp>
#include <spectrogram_gan_vit/gan/discriminator.hpp>
#include <spectrogram_gan_vit/gan/generator.hpp>
#include <spectrogram_gan_vit/vit/model.hpp>
#include <whisper/model/model.hpp>

#include <string>
#include <tuple>
#include <utility>

namespace lt = looptorch;

namespace flops_of_models {

std::int64_t recorded(const std::string& name, const char* which) {
  static const auto counts =
      lt::Json::parse(lt::read_file(LOOPTORCH_SOURCE_DIR "/tests/parity/data/flops/counts.json"));
  return counts.at(name).at(which).as_int();
}

using Batch = std::tuple<at::Tensor, at::Tensor>;

/// Returns the FLOPs of a step. `Layers` are those that `mode` recomputes.
template <class... Layers, class Model, class Objective>
std::int64_t of_step(Model model, const Objective& objective, const Batch& batch,
                     lt::CheckpointMode mode = lt::CheckpointMode::off) {
  lt::FusedAdamW adamw(model->parameters(), {.lr = 1e-5});
  lt::Trainer trainer(model, adamw, objective, lt::Checkpointed<Layers>{{.mode = mode}}...);
  trainer.step(batch);
  const lt::FlopCounter counter;
  trainer.step(batch);
  trainer.finish();
  return counter.count().total();
}

constexpr std::int64_t kTokens = 64, kBatch = 3;

whisper::Whisper whisper_model() {
  whisper::WhisperConfig config;
  config.vocab_size = kTokens;
  config.d_model = 32;
  config.encoder_layers = config.decoder_layers = 2;
  config.encoder_attention_heads = config.decoder_attention_heads = 2;
  config.encoder_ffn_dim = config.decoder_ffn_dim = 128;
  config.max_source_positions = 16, config.max_target_positions = 8;
  config.pad_token_id = config.bos_token_id = config.eos_token_id = 0;
  config.decoder_start_token_id = 1;
  return whisper::Whisper(config);
}

Batch speech() { return {at::randn({kBatch, 80, 32}), at::randint(2, kTokens, {kBatch, 8}, at::kLong)}; }

at::Tensor scores_loss(whisper::Whisper& model, const Batch& batch) {
  const auto& [mel_BMT, tokens_BL] = batch;
  return at::cross_entropy_loss(model->forward(mel_BMT, tokens_BL).flatten(0, 1), tokens_BL.flatten());
}

}  // namespace flops_of_models

using namespace flops_of_models;

TEST_CASE("FLOPs of Whisper: those of transformers' model") {
  CHECK(of_step<whisper::EncoderLayer, whisper::DecoderLayer>(whisper_model(), scores_loss, speech()) ==
        recorded("whisper", "both"));
}

TEST_CASE("FLOPs of Whisper: what is computed again counts again") {
  const auto own_loss = [](whisper::Whisper& model, const Batch& batch) {
    const auto& [mel_BMT, tokens_BL] = batch;
    return model->loss(mel_BMT, tokens_BL, tokens_BL);
  };
  // The loss in parts of the vocabulary never has all scores, and computes them again in backward.
  const std::int64_t scores = 2 * kBatch * 8 * 32 * kTokens;
  const auto step = [&](lt::CheckpointMode mode) {
    return of_step<whisper::EncoderLayer, whisper::DecoderLayer>(whisper_model(), own_loss, speech(), mode);
  };
  const std::int64_t kept = step(lt::CheckpointMode::off);
  CHECK(kept == recorded("whisper", "both") + scores);
  // Recomputed layers, the stem among them, keep what attention gave: 16 frames and 8 tokens, 32 numbers
  // wide.
  const std::int64_t attention = 2 * 2 * 2 * kBatch * 32 * (16 * 16 + 8 * 8 + 8 * 16);
  // A block runs again up to its last product, of 128 numbers a position, which backward does not need.
  const std::int64_t last = 2 * kBatch * 32 * 128 * 2 * (16 + 8);
  CHECK(step(lt::CheckpointMode::recompute) ==
        kept + recorded("whisper", "forward") - scores - attention - last);
}

TEST_CASE("FLOPs of the ViT: those of transformers' model") {
  const spectrogram_vit::ViTConfig config{.hidden_size = 32,
                                          .layers = 3,
                                          .heads = 2,
                                          .intermediate_size = 128,
                                          .image = {32, 32},
                                          .patch = {8, 8}};
  const auto objective = [](spectrogram_vit::ViTBackbone& model, const Batch& batch) {
    return model->forward(std::get<0>(batch)).sum();
  };
  CHECK(of_step<spectrogram_vit::ViTBlock>(spectrogram_vit::ViTBackbone(config), objective,
                                           {at::randn({kBatch, 3, 32, 32}), {}}) == recorded("vit", "both"));
}

TEST_CASE("FLOPs of KonkaniVani: those of the same layers, but for the depthwise convolution's gradient") {
  for (const bool relative : {false, true}) {
    konkanivani::ModelConfig config{.vocabulary = 12,
                                    .d_model = 24,
                                    .encoder_layers = 2,
                                    .decoder_layers = 2,
                                    .heads = 2,
                                    .feed_forward = 4,
                                    .kernel = 7,
                                    .mel_bins = 20,
                                    .dropout = 0};
    if (relative) config.positions = konkanivani::Positions::relative;
    const auto objective = [](konkanivani::KonkaniVani& model, const Batch& batch) {
      const auto& [mel_BMF, characters_BL] = batch;
      const auto encoded = model->encode(mel_BMF, at::full({kBatch}, 40, at::kLong));
      const auto lengths_B = at::full({kBatch}, 6, at::kLong);
      return model->ctc_scores(encoded).sum() +
             model->decoder_scores(characters_BL, lengths_B, encoded).sum();
    };
    const std::string name = relative ? "konkanivani.relative" : "konkanivani";
    const std::int64_t count = of_step<konkanivani::ConformerBlock>(
        konkanivani::KonkaniVani(config), objective,
        {at::randn({kBatch, 20, 40}), at::randint(12, {kBatch, 6}, at::kLong)});
    INFO(name);
    CHECK(count == recorded(name, "corrected"));
    // PyTorch counts the gradient of a depthwise weight once a channel too often: 24 channels, 10 frames.
    CHECK(recorded(name, "both") - count == 2 * 2 * kBatch * 10 * 7 * 24 * (24 - 1));
  }
}

TEST_CASE("FLOPs of the GAN's players: those of the same layers") {
  const spectrogram_gan::GanConfig config{
      .n_mels = 16, .frames = 48, .latent = 5, .channels = 16, .seed_rows = 2, .seed_columns = 5};
  spectrogram_gan::Generator generator(config);
  spectrogram_gan::Discriminator discriminator(config);
  const auto judged = [&](const at::Tensor& pictures, const at::Tensor& conditions_B2) {
    const auto [logits_B, emotions_B2] = discriminator->judge(pictures, conditions_B2);
    return logits_B.sum() + emotions_B2.sum();
  };
  const at::Tensor conditions_B2 = at::randn({kBatch, 2});
  {
    const lt::FlopCounter counter;
    judged(at::randn({kBatch, 1, 16, 48}), conditions_B2).backward();
    CHECK(counter.count().total() == recorded("gan.discriminator", "both"));
  }
  for (auto& parameter : discriminator->parameters()) parameter.requires_grad_(false);
  const lt::FlopCounter counter;
  judged(generator(at::randn({kBatch, 5}), conditions_B2), conditions_B2).backward();
  CHECK(counter.count().total() == recorded("gan.generator", "both"));
}
