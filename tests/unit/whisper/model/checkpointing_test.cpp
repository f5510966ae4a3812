// SPDX-License-Identifier: MIT
// Whisper's layers are Checkpointed ones, which changes no loss and no weight. That no name changes is in
// model_test.cpp and pretrained_test.cpp.
// Tests whisper/model: decoder, encoder
#include "support/precompiled.hpp"

#include <looptorch/policies.hpp>
#include <looptorch/trainer.hpp>

#include "../reference.hpp"
#include "support/operators_called.hpp"

#include <whisper/training/options.hpp>

#include <vector>

namespace lt = looptorch;
using whisper::Whisper;

namespace {

struct Batch {
  at::Tensor mel_BMT, tokens_BL, labels_BL;
};

std::vector<Batch> batches_of(const whisper::WhisperConfig& config, int count) {
  torch::manual_seed(3);
  std::vector<Batch> batches;
  for (int i = 0; i < count; ++i)
    batches.push_back({at::randn({2, config.num_mel_bins, 40}),
                       at::randint(config.vocab_size, {2, 6}, at::kLong),
                       at::randint(config.vocab_size, {2, 6}, at::kLong)});
  return batches;
}

at::Tensor objective(Whisper& model, const Batch& batch) {
  return model->loss(batch.mel_BMT, batch.tokens_BL, batch.labels_BL);
}

struct Trained {
  std::vector<at::Tensor> losses;
  lt::TensorMap weights;
};

/// Three steps of whisper_finetune's kind, with or without --gradient-checkpointing.
Trained train(Whisper model, const lt::CheckpointOptions& options) {
  Trained trained;
  lt::FusedAdamW optimizer(model->parameters(), {.lr = 1e-2});
  const auto observed = [&](Whisper& model, const Batch& batch) {
    return trained.losses.emplace_back(objective(model, batch));
  };
  lt::Trainer trainer(model, optimizer, observed, lt::Checkpointed<whisper::EncoderLayer>{options},
                      lt::Checkpointed<whisper::DecoderLayer>{options});
  trainer.fit(batches_of(model->config(), 3));
  trained.weights = lt::state_dict(model);
  return trained;
}

void check_same(const Trained& a, const Trained& b) {
  REQUIRE(a.losses.size() == 3);
  REQUIRE(b.losses.size() == 3);
  for (std::size_t i = 0; i < 3; ++i) CHECK(a.losses[i].equal(b.losses[i]));
  REQUIRE(a.weights.size() == b.weights.size());
  for (const auto& [name, tensor] : a.weights) {
    INFO(name);
    CHECK(tensor.equal(b.weights.at(name)));
  }
}

/// Returns how often a step computes an operator.
int count_in_a_step(const char* name, lt::CheckpointMode mode) {
  auto model = whisper_test::tiny_model();
  const OperatorsCalled called;
  train(model, {.mode = mode});
  return called.count(name) / 3;
}

}  // namespace

TEST_CASE("Whisper trains to the same bits with and without --gradient-checkpointing") {
  const auto train_with = [](bool recomputes) {
    return train(whisper_test::tiny_model(), whisper::FinetuneOptions{}.checkpoint(recomputes));
  };
  check_same(train_with(true), train_with(false));
  check_same(train_with(true), train(whisper_test::tiny_model(), {.mode = lt::CheckpointMode::off}));
}

TEST_CASE("With --gradient-checkpointing each layer runs twice a step, without it all but its products") {
  // Products with a bias; those of queries, keys and values are one. The last of a layer is not computed
  // again: what it saves is its input.
  const int encoder_layers = 2, decoder_layers = 2, encoder = 4 - 1, decoder = 7 - 1;
  const int plain = count_in_a_step("aten::addmm", lt::CheckpointMode::off);
  CHECK(count_in_a_step("aten::addmm", lt::CheckpointMode::light) == plain);
  CHECK(count_in_a_step("aten::addmm", lt::CheckpointMode::recompute) ==
        plain + encoder_layers * encoder + decoder_layers * decoder);
  const int gelus = 2 + encoder_layers + decoder_layers;
  CHECK(count_in_a_step("aten::gelu", lt::CheckpointMode::off) == gelus);
  // The last GELU of the convolutions saves the product before it, which is kept.
  CHECK(count_in_a_step("aten::gelu", lt::CheckpointMode::light) == 2 * gelus - 1);
}

TEST_CASE("Whisper's loss equals the mean cross-entropy of all scores, and its gradients") {
  auto model = whisper_test::tiny_model(), plain = whisper_test::tiny_model();
  for (const Batch& batch : batches_of(model->config(), 2)) {  // the second adds to gradients
    batch.labels_BL[0][1] = whisper::kIgnored;
    const at::Tensor loss = objective(model, batch);
    const at::Tensor wanted =
        whisper_test::token_mean_loss(plain(batch.mel_BMT, batch.tokens_BL), batch.labels_BL);
    CHECK(loss.item<double>() == Approx(wanted.item<double>()).epsilon(1e-6));
    loss.backward();
    wanted.backward();
  }
  const auto expected = plain->named_parameters();
  for (const auto& item : model->named_parameters()) {
    INFO(item.key());
    if (!item.value().requires_grad()) continue;
    const at::Tensor& gradient = expected[item.key()].grad();
    CHECK((item.value().grad() - gradient).abs().max().item<double>() <
          1e-5 * gradient.abs().max().item<double>() + 1e-7);
  }
}

TEST_CASE("Without a policy Whisper's layers recompute, to the same gradients") {
  auto model = whisper_test::tiny_model(), kept = whisper_test::tiny_model();
  for (const auto& module : kept->modules()) {
    if (auto* layer = module->as<lt::Checkpointed<whisper::EncoderLayer>>())
      layer->checkpoint.mode = lt::CheckpointMode::off;
    if (auto* layer = module->as<lt::Checkpointed<whisper::DecoderLayer>>())
      layer->checkpoint.mode = lt::CheckpointMode::off;
  }
  const Batch batch = batches_of(model->config(), 1).front();
  objective(model, batch).backward();
  objective(kept, batch).backward();
  const auto gradients = model->named_parameters(), expected = kept->named_parameters();
  for (const auto& item : gradients) {
    INFO(item.key());
    const at::Tensor& gradient = item.value().grad();
    REQUIRE(gradient.defined() == expected[item.key()].grad().defined());
    if (gradient.defined()) CHECK(gradient.equal(expected[item.key()].grad()));
  }
}

TEST_CASE("The real weights load into layers that are recomputed, and give the same loss and gradients") {
  const auto folder = whisper_test::real_model_folder();
  if (!folder) return;
  Whisper model = whisper::load_pretrained(*folder);
  model->train();
  const at::Tensor mel_BMT = whisper_test::speech_mel(400);
  const at::Tensor tokens_BL = at::arange(300, 320).view({2, 10}), labels_BL = tokens_BL + 1;
  const auto gradient = [&](lt::CheckpointMode mode) {
    for (const auto& module : model->modules())
      if (auto* layer = module->as<lt::Checkpointed<whisper::EncoderLayer>>()) layer->checkpoint.mode = mode;
    model->zero_grad();
    objective(model, {mel_BMT, tokens_BL, labels_BL}).backward();
    return model->named_parameters()["model.encoder.conv1.weight"].grad().clone();
  };
  const at::Tensor plain = gradient(lt::CheckpointMode::off);
  CHECK(plain.abs().sum().item<double>() > 0);
  CHECK(gradient(lt::CheckpointMode::recompute).equal(plain));
}
