// SPDX-License-Identifier: MIT
// Measures the memory and time of training steps of the spectrogram GAN and of ViT-B/16 at their published
// sizes: 128 mel bins, 1,292 frames, 224 x 224 pixels, by batch size, without accumulation; the ViT also with
// recomputed blocks, and with all of it frozen but the head, as its fine-tuning begins. Optimizers with their
// moments; fp32; CPU. Peaks are those of all tensors, weights and moments among them, in the second step.
//
//   gan_vit_memory [gan|vit [BATCH]]   prints a JSON object a row
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

/// Returns the cost of the second step; the first creates the optimizers' moments.
template <class Trainer>
Cost cost_of(Trainer& trainer, const Batch& batch) {
  trainer.step(batch);
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
  return cost_of(trainer, make_batch(clips));
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
  return cost_of(trainer, make_batch(clips));
}

void print(const std::string& name, std::int64_t clips, const Cost& cost) {
  for (const auto& [value, unit] : {std::pair{cost.megabytes, "MB"}, std::pair{cost.seconds, "s"}})
    std::printf(
        "{\"name\": \"%s, batch %lld: %s\", \"value\": %.2f, \"unit\": \"%s\", \"peer\": \"none\", \"peer_value\": 0}\n",
        name.c_str(), static_cast<long long>(clips), *unit == 'M' ? "peak" : "a step", value, unit);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string which = argc > 1 ? argv[1] : "";
  const std::int64_t only = argc > 2 ? std::stoll(argv[2]) : 0;
  for (const auto clips : kBatches) {
    if (only > 0 && clips != only) continue;
    if (which != "vit") print("GAN", clips, gan_step(clips));
    if (which == "gan") continue;
    print("ViT-B/16", clips, vit_step(clips, Saving::none));
    print("ViT-B/16 recomputed", clips, vit_step(clips, Saving::recomputed));
    print("ViT-B/16 frozen", clips, vit_step(clips, Saving::frozen));
  }
}
