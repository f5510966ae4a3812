// SPDX-License-Identifier: MIT
// Measures a step of training ViT-B/16 (1,000 classes, images of 224 x 224, bf16, AdamW, clipping) on a
// device through a Trainer, in the three modes of Checkpointed. vit_step.py has timm as the peer.
#include <looptorch/policies.hpp>
#include <looptorch/policies/capture_graphs.hpp>
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

void measure(const DeviceRun& run, const char* name, CheckpointMode mode, bool captures = false) {
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
                      lt::BackendFlags{.tf32 = true}, lt::When{captures, lt::CaptureGraphs{}},
                      lt::Checkpointed<spectrogram_vit::ViTBlock>{lt::CheckpointOptions{.mode = mode}});
  const std::vector<Images> batches{batch};
  TimedBatches timed(run, batches, run.quick ? 1 : 5, steps);
  trainer.fit(timed, {.epochs = 1});
  const Cost cost = timed.cost(steps);
  const std::string row = std::string("ViT-B/16, B ") + std::to_string(images) + ", bf16, " + name;
  print_row(row, static_cast<double>(images) * 1000 / cost.ms, "images/s");
  print_row(row + ": host", cost.host_ms / cost.ms, "of a step's time");
  print_row(row + ": peak", static_cast<double>(cost.peak_bytes) / 1e6, "MB");
}

}  // namespace

int main(int count, char** words) {
  const DeviceRun run = DeviceRun::of(count, words);
  bool all = true;
  const auto measured = [&](const char* name, CheckpointMode mode, bool captures) {
    all = attempt(run, std::string("ViT-B/16, ") + name, [&] { measure(run, name, mode, captures); }) && all;
  };
  measured("keeps all", CheckpointMode::off, false);
  measured("light", CheckpointMode::light, false);
  measured("recomputed", CheckpointMode::recompute, false);
  measured("keeps all, captured", CheckpointMode::off, true);
  measured("light, captured", CheckpointMode::light, true);
  measured("recomputed, captured", CheckpointMode::recompute, true);
  return all ? 0 : 1;
}
