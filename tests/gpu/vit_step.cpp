// SPDX-License-Identifier: MIT
// Measures a step of training ViT-B/16 (1,000 classes, images of 224 x 224, bf16, AdamW, clipping) on a
// device through a Trainer, in the three modes of Checkpointed. vit_step.py has timm as the peer.
#include <looptorch/policies.hpp>
#include <looptorch/trainer.hpp>

#include "support/device_run.hpp"

#include <spectrogram_gan_vit/vit/model.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace lt = looptorch;

namespace {

using namespace bench;
using lt::CheckpointMode;

struct Images {
  at::Tensor pixels;  // [B, 3, 224, 224]
  at::Tensor labels;  // [B]
};

struct ClassifierImpl : torch::nn::Module {
  explicit ClassifierImpl(const spectrogram_vit::ViTConfig& config)
      : trunk(register_module("trunk", spectrogram_vit::ViTBackbone(config))),
        head(register_module("head", torch::nn::Linear(config.hidden_size, 1000))) {}

  at::Tensor forward(const at::Tensor& pixels) { return head(trunk(pixels).select(1, 0)); }

  spectrogram_vit::ViTBackbone trunk;
  torch::nn::Linear head;
};
TORCH_MODULE(Classifier);

void measure(const DeviceRun& run, const char* name, CheckpointMode mode) {
  const std::int64_t images = run.quick ? 1 : 64, steps = run.quick ? 1 : 20;
  torch::manual_seed(0);
  Classifier net(spectrogram_vit::ViTConfig{});
  net->to(run.device);
  const Images batch{torch::randn({images, 3, 224, 224}).to(run.device),
                     torch::randint(0, 1000, {images}, at::kLong).to(run.device)};
  lt::FusedAdamW optimizer(net->parameters(), {.lr = 1e-4});
  const auto objective = [](Classifier& net, const Images& batch) {
    return torch::nn::functional::cross_entropy(net(batch.pixels), batch.labels);
  };
  lt::Trainer trainer(net, optimizer, objective, lt::Autocast<lt::bf16>{}, lt::ClipGradNorm{1.0},
                      lt::BackendFlags{.tf32 = true},
                      lt::Checkpointed<spectrogram_vit::ViTBlock>{lt::CheckpointOptions{.mode = mode}});
  trainer.fit(std::vector<Images>(run.quick ? 1 : 5, batch));
  const std::vector<Images> batches(static_cast<std::size_t>(steps), batch);
  const Cost cost = cost_of(run, steps, [&] { trainer.fit(batches, {.epochs = 2}); });
  const std::string row = std::string("ViT-B/16, B ") + std::to_string(images) + ", bf16, " + name;
  print_row(row, static_cast<double>(images) * 1000 / cost.ms, "images/s");
  print_row(row + ": host", cost.host_ms / cost.ms, "of a step's time");
  print_row(row + ": peak", static_cast<double>(cost.peak_bytes) / 1e6, "MB");
}

}  // namespace

int main(int count, char** words) {
  const DeviceRun run = DeviceRun::of(count, words);
  const auto measured = [&](const char* name, CheckpointMode mode) {
    return attempt(run, std::string("ViT-B/16, ") + name, [&] { measure(run, name, mode); });
  };
  const bool all[] = {measured("keeps all", CheckpointMode::off), measured("light", CheckpointMode::light),
                      measured("recomputed", CheckpointMode::recompute)};
  return all[0] && all[1] && all[2] ? 0 : 1;
}
