// SPDX-License-Identifier: MIT
// Measures the memory and time of training steps of the spectrogram GAN and of ViT-B/16 at their published
// sizes: 128 mel bins, 1,292 frames, 224 x 224 pixels, by batch size, without accumulation; the ViT also with
// recomputed blocks, and with all of it frozen but the head, as its fine-tuning begins. Optimizers with their
// moments; fp32; CPU. Peaks are those of all tensors, weights and moments among them.
//
//   gan_vit_memory [gan|vit]   prints a JSON object a row
#include <looptorch/policies/checkpointed.hpp>
#include <looptorch/trainer.hpp>

#include "support/counting_allocator.hpp"

#include <spectrogram_gan_vit/gan/model.hpp>
#include <spectrogram_gan_vit/gan/objectives.hpp>
#include <spectrogram_gan_vit/vit/model.hpp>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>

namespace lt = looptorch;
namespace sg = spectrogram_gan;
namespace sv = spectrogram_vit;

namespace {

constexpr std::int64_t kBatches[] = {8, 16, 32};

struct Batch {
  at::Tensor spectrograms_B1MF, conditions_B2;
};

Batch make_batch(std::int64_t clips) {
  return {at::randn({clips, 1, 128, 1292}), at::rand({clips, 2}) * 2 - 1};
}

struct Cost {
  double megabytes, seconds;
};

/// Returns the cost of a step of `clips`, after one of 2 clips that creates the optimizers' moments.
template <class Trainer>
Cost cost_of(Trainer& trainer, std::int64_t clips) {
  trainer.step(make_batch(2));
  const auto batch = make_batch(clips);
  bench_forget_peak();
  const auto begin = std::chrono::steady_clock::now();
  trainer.step(batch);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  return {static_cast<double>(bench_peak_bytes()) / 1e6, seconds.count()};
}

Cost gan_step(std::int64_t clips) {
  torch::manual_seed(1);
  sg::Gan gan(sg::GanConfig{});
  lt::FusedAdam of_generator(gan->generator->parameters(), {.lr = 2e-4, .betas = {0.5, 0.999}});
  lt::FusedAdam of_discriminator(gan->discriminator->parameters(), {.lr = 1e-4, .betas = {0.5, 0.999}});
  const sg::GameOptions game{.mismatched = 0.5, .auxiliary = 1};
  lt::Trainer trainer(gan, lt::Update{of_discriminator, sg::DiscriminatorObjective{game}},
                      lt::Update{of_generator, sg::GeneratorObjective{game}}, lt::ClipGradNorm{1.0});
  return cost_of(trainer, clips);
}

enum class Saving { none, recomputed, frozen };

Cost vit_step(std::int64_t clips, Saving saving) {
  torch::manual_seed(1);
  sv::ViT model{sv::ViTConfig{}};
  if (saving == Saving::frozen)
    for (const auto& parameter : model->backbone->parameters()) parameter.set_requires_grad(false);
  lt::FusedAdamW optimizer(model->parameters(), {.lr = 1e-4});
  const auto objective = [](sv::ViT& net, const Batch& batch) {
    return lt::Loss{.value = at::mse_loss(net(batch.spectrograms_B1MF), batch.conditions_B2),
                    .weight = batch.conditions_B2.size(0)};
  };
  lt::Trainer trainer(model, optimizer, objective, lt::ClipGradNorm{1.0},
                      lt::When{saving == Saving::recomputed, lt::Checkpointed<sv::ViTBlock>{}});
  return cost_of(trainer, clips);
}

/// Prints memory and time beside those of `peer`.
void print(const std::string& name, const Cost& cost, const char* peer_name, const Cost& peer) {
  const auto row = [&](const char* what, const char* unit, double value, double peer_value) {
    std::printf(
        "{\"name\": \"%s: %s\", \"value\": %.2f, \"unit\": \"%s\", \"peer\": \"%s\", \"peer_value\": %.2f}\n",
        name.c_str(), what, value, unit, peer_name, peer_value);
  };
  row("peak", "MB", cost.megabytes, peer.megabytes);
  row("a step", "s", cost.seconds, peer.seconds);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string which = argc > 1 ? argv[1] : "";
  Cost first_gan{}, first_vit{};
  for (const auto clips : kBatches) {
    const auto batch = ", batch " + std::to_string(clips);
    if (which != "vit") {
      const auto gan = gan_step(clips);
      if (clips == kBatches[0]) first_gan = gan;
      print("GAN" + batch, gan, "batch 8", first_gan);
    }
    if (which == "gan") continue;
    const auto vit = vit_step(clips, Saving::none);
    if (clips == kBatches[0]) first_vit = vit;
    print("ViT-B/16" + batch, vit, "batch 8", first_vit);
    print("ViT-B/16" + batch + ", recomputed", vit_step(clips, Saving::recomputed), "plain", vit);
    print("ViT-B/16" + batch + ", frozen", vit_step(clips, Saving::frozen), "plain", vit);
  }
}
