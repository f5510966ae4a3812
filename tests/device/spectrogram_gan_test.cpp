// SPDX-License-Identifier: MIT
// The spectrogram GAN on a device: the CPU's numbers, a game in fp16 that stays finite, and one by graphs.
#include "support/precompiled.hpp"

#include <looptorch/policies/capture_graphs.hpp>
#include <looptorch/trainer.hpp>

#include "support/device.hpp"
#include "support/snapshots.hpp"

#include <spectrogram_gan_vit/gan/balance.hpp>
#include <spectrogram_gan_vit/gan/objectives.hpp>

#include <cmath>
#include <string>
#include <vector>

namespace gan = spectrogram_gan;
namespace lt = looptorch;
using namespace looptorch::testing;
using Catch::StartsWith;

namespace {

struct Clips {
  at::Tensor spectrograms_B1MF, conditions_B2;
};

gan::Gan model_on(at::Device device) {
  torch::manual_seed(3);
  gan::Gan model(
      gan::GanConfig{.n_mels = 32, .frames = 96, .channels = 16, .seed_rows = 4, .seed_columns = 6});
  model->to(device);
  return model;
}

Clips clips_on(at::Device device) {
  torch::manual_seed(5);
  const auto spectrograms = at::randn({4, 1, 32, 96}), conditions = at::rand({4, 2}) * 2 - 1;
  return {spectrograms.to(device), conditions.to(device)};
}

}  // namespace

TEST_CASE(
    "What the players of a spectrogram GAN say on a device is what they say on a CPU, gradients included") {
  if (!has_device()) return;
  const auto numbers = [](at::Device device) {
    auto model = model_on(device);
    const auto clips = clips_on(device);
    torch::manual_seed(9);
    const auto made = model->generator(at::randn({4, 100}).to(device), clips.conditions_B2);
    const auto real = model->discriminator->judge(clips.spectrograms_B1MF, clips.conditions_B2);
    const auto judge = [&](const at::Tensor& seen) {
      return model->discriminator(seen, clips.conditions_B2);
    };
    const auto loss = gan::discriminator_loss(gan::AdversarialLoss::hinge, real.logits_B, judge(made)) +
                      gan::gradient_penalty(judge, clips.spectrograms_B1MF) +
                      at::mse_loss(real.emotions_B2, clips.conditions_B2);
    loss.backward();
    std::vector<double> all{loss.item<double>(), made.mean().item<double>(), made.std().item<double>()};
    for (const auto& parameter : model->parameters())
      if (parameter.grad().defined()) all.push_back(parameter.grad().norm().item<double>());
    return all;
  };
  const auto host = numbers(at::kCPU), device = numbers(test_device());
  REQUIRE(host.size() == device.size());
  for (std::size_t i = 0; i < host.size(); ++i)
    CHECK(device[i] == Approx(host[i]).epsilon(0.02).margin(1e-3));
}

TEST_CASE("A spectrogram GAN plays in fp16 on a device, with accumulation, R1 and instance noise") {
  if (!has_device()) return;
  auto model = model_on(test_device());
  lt::FusedAdam of_generator(model->generator->parameters(), {.lr = 1e-3});
  lt::FusedAdam of_discriminator(model->discriminator->parameters(), {.lr = 1e-3});
  const gan::GameOptions game{.r1 = 1, .instance_noise = true, .mismatched = 0.5, .auxiliary = 1};
  lt::Trainer trainer(model,
                      lt::Update{of_discriminator,
                                 gan::DiscriminatorObjective{game},
                                 {.name = "discriminator", .when = gan::UnlessWinning{}}},
                      lt::Update{of_generator, gan::GeneratorObjective{game}, {.name = "generator"}},
                      lt::Accumulate<2>{}, lt::Autocast<lt::fp16>{}, lt::ClipGradNorm{1.0},
                      gan::AnnealInstanceNoise{0.2}, lt::CacheFlushEvery<10>{});
  const auto result = trainer.fit(std::vector<Clips>(8, clips_on(at::kCPU)), {.epochs = 5});
  CHECK(result.steps == 20);
  CHECK(trainer.updates()[1].applied > 10);  // later ones may overflow, as with GradScaler
  for (const auto loss : result.losses) CHECK(std::isfinite(loss));
  for (const auto& parameter : model->parameters()) CHECK(parameter.isfinite().all().item<bool>());
}

TEST_CASE("Both players of a spectrogram GAN run as graphs, with the eager game's bits") {
  if (!has_device()) return;
  const auto played = [](bool captures) {
    auto model = model_on(test_device());
    torch::manual_seed(7);
    lt::FusedAdam of_generator(model->generator->parameters(), {.lr = 1e-3});
    lt::FusedAdam of_discriminator(model->discriminator->parameters(), {.lr = 1e-3});
    const gan::GameOptions game{.r1 = 1, .instance_noise = true, .mismatched = 0.5, .auxiliary = 1};
    std::string said;
    lt::Trainer trainer(
        model,
        lt::Update{of_discriminator,
                   gan::DiscriminatorObjective{game},
                   {.name = "discriminator", .when = gan::UnlessWinning{}}},
        lt::Update{of_generator, gan::GeneratorObjective{game}, {.name = "generator"}},
        gan::AnnealInstanceNoise{0.2},
        lt::When{captures, lt::CaptureGraphs{.report = [&](const std::string& text) { said = text; }}});
    trainer.fit(std::vector<Clips>(6, clips_on(at::kCPU)), {.epochs = 1});
    if (captures) CHECK_THAT(said, StartsWith("8 of 12 micro-batches ran as graphs, of which there are 2"));
    std::vector<at::Tensor> all = model->parameters();
    for (const at::Tensor& buffer : model->buffers()) all.push_back(buffer);
    return all;
  };
  const auto eager = played(false), replayed = played(true);
  for (std::size_t i = 0; i < eager.size(); ++i) CHECK(bits_equal(eager[i].cpu(), replayed[i].cpu()));
}
