// SPDX-License-Identifier: MIT
// KonkaniVani on a device. The first project waited for it in every micro-batch.
#include "support/precompiled.hpp"

#include <looptorch/policies.hpp>
#include <looptorch/trainer.hpp>

#include "support/device.hpp"

#include <konkanivani/decoding/recognizer.hpp>
#include <konkanivani/training/objective.hpp>

#include <string>
#include <vector>

namespace lt = looptorch;
using namespace looptorch::testing;

TEST_CASE("KonkaniVani's losses, gradients and best scores on a device are those on a CPU") {
  if (!has_device()) return;
  torch::manual_seed(3);
  konkanivani::KonkaniVani model(
      konkanivani::ModelConfig{.vocabulary = 20, .d_model = 64, .encoder_layers = 2, .decoder_layers = 2});
  model->eval();
  const auto mel_BMF = at::randn({2, 80, 200}), lengths_B = torch::tensor({200, 120}, at::kLong);
  const auto numbers = [&](at::Device device) {
    model->zero_grad();
    model->to(device);
    auto targets = konkanivani::make_targets(std::vector<std::vector<int64_t>>{{5, 6, 7}, {8, 9}});
    for (auto* tensor : {&targets.characters_BL, &targets.inputs_BL, &targets.labels_BL,
                         &targets.input_lengths_B, &targets.ctc_frames_B})
      *tensor = tensor->to(device);
    const auto mel = mel_BMF.to(device), lengths = lengths_B.to(device);
    const auto loss = konkanivani::joint_loss(model, model->encode(mel, lengths), targets, {});
    loss.sum.backward();
    std::vector<double> all{loss.sum.item<double>()};
    for (const auto& parameter : model->parameters()) all.push_back(parameter.grad().norm().item<double>());
    for (const std::string method : {"ctc", "attention", "joint"})
      for (const auto& texts : konkanivani::recognize(model, mel, lengths, {.method = method, .beam = {}}))
        all.push_back(texts.front().score);
    return all;
  };
  const auto host = numbers(at::kCPU), device = numbers(test_device());
  REQUIRE(host.size() == device.size());
  for (size_t i = 0; i < host.size(); ++i) CHECK(device[i] == Approx(host[i]).epsilon(0.02).margin(1e-3));
}

TEST_CASE("KonkaniVani's micro-batches wait for nothing on the device") {
  if (!has_device()) return;
  konkanivani::KonkaniVani model(
      konkanivani::ModelConfig{.vocabulary = 20, .d_model = 64, .encoder_layers = 2, .decoder_layers = 2});
  model->to(test_device());
  auto targets = konkanivani::make_targets(std::vector<std::vector<int64_t>>{{5, 6, 7}, {8, 9}});
  for (auto* tensor : {&targets.characters_BL, &targets.inputs_BL, &targets.labels_BL,
                       &targets.input_lengths_B, &targets.ctc_frames_B})
    *tensor = tensor->to(test_device());
  const konkanivani::Batch batch{.mel_BMF = at::randn({2, 80, 200}).to(test_device()),
                                 .lengths_B = torch::tensor({200, 120}, at::kLong).to(test_device()),
                                 .indices = {},
                                 .targets = targets,
                                 .texts = {}};
  lt::FusedAdamW optimizer(model->parameters());
  lt::Trainer trainer(model, optimizer, konkanivani::JointLoss{}, lt::Accumulate<2>{},
                      lt::Autocast<lt::fp16>{}, lt::Checkpointed<konkanivani::ConformerBlock>{},
                      lt::ClipGradNorm{5.0}, lt::ScheduleLr{.decay = lt::ConstantLr{}, .warmup_steps = 3});
  for (int i = 0; i < 4; ++i) trainer.step(batch);  // allocators and handles are there afterwards
  const NoWaits no_waits;
  for (int i = 0; i < 8; ++i) CHECK_NOTHROW(trainer.step(batch));
  CHECK_THROWS(trainer.updates()[0].loss.mean());  // so that a wait would have shown
}
