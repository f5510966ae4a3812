// SPDX-License-Identifier: MIT
// whisper_finetune --freeze-encoder: what a frozen encoder computes, keeps and leaves behind.
// Tests whisper/model: model
// Tests whisper/training: options
#include "support/precompiled.hpp"

#include <looptorch/data/loader/intra_op.hpp>
#include <looptorch/policies.hpp>
#include <looptorch/preflight.hpp>
#include <looptorch/trainer.hpp>

#include "../parsed_options.hpp"
#include "../reference.hpp"

#include <whisper/training/options.hpp>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace lt = looptorch;
using Catch::Matchers::Contains;
using whisper::Whisper;
using whisper_test::parsed;

namespace {

struct Clips {
  at::Tensor mel_BMT, tokens_BL, labels_BL;
};

std::vector<Clips> clips_of(Whisper& model, int batches) {
  torch::manual_seed(3);
  const auto tokens = [&] { return at::randint(model->config().vocab_size, {2, 6}, at::kLong); };
  std::vector<Clips> clips;
  for (int i = 0; i < batches; ++i)
    clips.push_back({at::randn({2, model->config().num_mel_bins, 40}), tokens(), tokens()});
  return clips;
}

at::Tensor loss_of(Whisper& model, const Clips& clips) {
  return whisper_test::token_mean_loss(model(clips.mel_BMT, clips.tokens_BL), clips.labels_BL);
}

Whisper model_of(std::int64_t encoder_layers) {
  auto config = whisper_test::tiny_model()->config();
  config.encoder_layers = encoder_layers;
  torch::manual_seed(7);
  return Whisper(config);
}

void set_mode(Whisper& model, lt::CheckpointMode mode) {
  for (const auto& module : model->modules()) {
    if (auto* layer = module->as<lt::Checkpointed<whisper::EncoderLayer>>()) layer->checkpoint.mode = mode;
    if (auto* layer = module->as<lt::Checkpointed<whisper::DecoderLayer>>()) layer->checkpoint.mode = mode;
  }
}

/// Returns the bytes that a forward pass keeps for backward.
std::int64_t kept_bytes(Whisper model, bool frozen, lt::CheckpointMode mode) {
  set_mode(model, mode);
  if (frozen) (void)model->freeze_encoder();
  const Clips clips = clips_of(model, 1).front();
  auto& memory = lt::HostMemory::counted();
  const std::int64_t before = memory.allocated_bytes();
  const at::Tensor loss = loss_of(model, clips);
  return memory.allocated_bytes() - before;
}

/// A run of whisper_finetune's kind.
struct Run {
  Run(bool frozen, lt::CheckpointMode mode)
      : model(whisper_test::tiny_model()),
        optimizer(frozen ? model->freeze_encoder() : model->parameters(), {.lr = 1e-2}),
        trainer(model, optimizer, &loss_of, lt::Accumulate<2>{},
                lt::Checkpointed<whisper::EncoderLayer>{{.mode = mode}},
                lt::Checkpointed<whisper::DecoderLayer>{{.mode = mode}}, lt::ClipGradNorm{1.0},
                lt::WatchMemory{.out = nullptr}) {}

  Whisper model;
  lt::FusedAdamW optimizer;
  lt::Trainer<Whisper, lt::Update<lt::FusedAdamW, at::Tensor (*)(Whisper&, const Clips&)>, lt::Accumulate<2>,
              lt::Checkpointed<whisper::EncoderLayer>, lt::Checkpointed<whisper::DecoderLayer>,
              lt::ClipGradNorm, lt::WatchMemory>
      trainer;
};

bool is_of_encoder(const std::string& name) { return name.starts_with("model.encoder."); }

lt::TensorMap weights_of(Whisper& model) {
  lt::TensorMap weights;
  for (const auto& item : model->named_parameters())
    weights.emplace(item.key(), item.value().detach().clone());
  return weights;
}

constexpr auto kOff = lt::CheckpointMode::off, kRecompute = lt::CheckpointMode::recompute;

}  // namespace

TEST_CASE("Whisper's decoder has the same gradients with a frozen encoder, which has none") {
  for (const auto mode : {kOff, kRecompute, lt::CheckpointMode::offload}) {
    auto whole = whisper_test::tiny_model(), frozen = whisper_test::tiny_model();
    set_mode(whole, kOff), set_mode(frozen, mode);
    const auto trained = frozen->freeze_encoder();
    CHECK(trained.size() == whole->decoder()->parameters().size());
    const Clips clips = clips_of(whole, 1).front();
    const at::Tensor expected = loss_of(whole, clips), loss = loss_of(frozen, clips);
    CHECK(loss.equal(expected));
    expected.backward(), loss.backward();
    for (const auto& item : frozen->named_parameters()) {
      INFO(item.key());
      if (is_of_encoder(item.key()))
        CHECK_FALSE(item.value().grad().defined());
      else
        CHECK(item.value().grad().equal(whole->named_parameters()[item.key()].grad()));
    }
  }
}

TEST_CASE("A frozen encoder keeps nothing for backward, however many layers it has") {
  for (const auto mode : {kOff, kRecompute}) {
    const auto one = kept_bytes(model_of(1), true, mode), four = kept_bytes(model_of(4), true, mode);
    CHECK(one == four);
    const auto whole_one = kept_bytes(model_of(1), false, mode), whole = kept_bytes(model_of(4), false, mode);
    CHECK(whole_one > one);
    CHECK(whole > whole_one);
  }
}

TEST_CASE(
    "Training with a frozen encoder moves the decoder alone, and holds gradients and moments of it alone") {
  Run run(true, kOff), recomputed(true, kRecompute), whole(false, kOff);
  const auto before = weights_of(run.model);
  for (Run* each : {&run, &recomputed, &whole}) each->trainer.fit(clips_of(each->model, 4), {.epochs = 2});
  std::int64_t of_decoder = 0;
  for (const auto& item : run.model->named_parameters()) {
    INFO(item.key());
    const bool moved = !item.value().equal(before.at(item.key()));
    CHECK(moved == !is_of_encoder(item.key()));
    CHECK(item.value().equal(recomputed.model->named_parameters()[item.key()]));
    if (moved) of_decoder += static_cast<std::int64_t>(item.value().nbytes());
  }
  const auto parts = run.trainer.policy<lt::WatchMemory>().breakdown();
  const auto held = run.trainer.held_memory();
  CHECK(held.gradients == of_decoder);
  CHECK(held.optimizer >= 2 * of_decoder);
  CHECK(held.optimizer < 2 * of_decoder + 100);  // and counts of steps
  CHECK(parts.activations < whole.trainer.policy<lt::WatchMemory>().breakdown().activations);
}

TEST_CASE("A preflight with a frozen encoder predicts the run's peak") {
  const looptorch::detail::SingleIntraOpThread one_thread;  // several allocate at times of their own
  Run run(true, kOff);
  const auto clips = clips_of(run.model, 4);
  const auto report = lt::preflight(run.trainer, clips, {.cap = 1 << 30});
  run.trainer.fit(clips, {.epochs = 2});
  CHECK(report.needed == run.trainer.policy<lt::WatchMemory>().peak().bytes);
  for (const auto& parameter : run.model->encoder()->parameters()) CHECK_FALSE(parameter.requires_grad());
}

TEST_CASE("A run with a frozen encoder continues with one, and refuses a snapshot of the other kind") {
  Run alone(true, kOff), first(true, kOff), second(true, kRecompute), whole(false, kOff);
  const auto clips = clips_of(alone.model, 4);
  alone.trainer.fit(clips, {.epochs = 2});
  first.trainer.fit(clips, {.epochs = 1});
  const auto contents = first.trainer.snapshot();
  (void)second.trainer.restore(contents);
  second.trainer.fit(clips, {.epochs = 2});
  for (const auto& item : alone.model->named_parameters())
    CHECK(item.value().equal(second.model->named_parameters()[item.key()]));
  CHECK_THROWS_WITH(whole.trainer.restore(contents),
                    Contains("parameters in group 0: ") && Contains("only here: model.encoder."));
}

TEST_CASE("--freeze-encoder and --gradient-checkpointing: what each means, and what they exclude") {
  CHECK_FALSE(parsed({}).memory.freeze_encoder);
  CHECK(parsed({"--freeze_encoder"}).memory.freeze_encoder);
  CHECK_FALSE(parsed({"--freeze-encoder", "--no-freeze-encoder"}).memory.freeze_encoder);
  CHECK(parsed({"--gradient-checkpointing"}).recompute == "all");
  CHECK(parsed({"--gradient-checkpointing", "--no-gradient-checkpointing"}).recompute == "none");
  CHECK_NOTHROW(parsed({"--freeze-encoder", "--gradient-checkpointing"}).check());
  CHECK_THROWS_WITH(
      parsed({"--freeze-encoder", "--gradient-checkpointing", "encoder"}).check(),
      "--freeze-encoder leaves nothing for --gradient-checkpointing encoder to save: give all or none");
}
