// SPDX-License-Identifier: MIT
// Learns which of two interleaved spirals a point of the plane lies on. Put your dataset and your model in the place of
// Spirals and Net: the rest is a whole program, with flags, snapshots, resume and a summary.
#include <looptorch/app/device.hpp>
#include <looptorch/app/fit.hpp>
#include <looptorch/app/output_folder.hpp>
#include <looptorch/app/profile_policy.hpp>
#include <looptorch/app/ranks.hpp>
#include <looptorch/app/run_log.hpp>
#include <looptorch/app/summary.hpp>
#include <looptorch/app/training_flags.hpp>
#include <looptorch/data/loader/pinned_prefetch_loader.hpp>
#include <looptorch/policies/snapshot_every.hpp>
#include <looptorch/state/weights/save_weights.hpp>
#include <looptorch/trainer.hpp>

#include <torch/torch.h>

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <span>
#include <vector>

namespace app = looptorch::app;
namespace lt = looptorch;

struct Batch {
  torch::Tensor points, labels;  // [B, 2], [B]
};

struct Spirals {
  std::int64_t first, count;  // which points of the plane

  std::int64_t size() const { return count; }

  Batch get(std::int64_t index) const {  // called by several threads
    const std::int64_t n = first + index;
    const double turn = 0.1 * static_cast<double>(n % 97), sign = n % 2 == 0 ? 1 : -1;
    return {torch::tensor({sign * turn * std::cos(turn), sign * turn * std::sin(turn)}) / 3, torch::tensor(n % 2)};
  }

  Batch collate(std::span<Batch> samples) const {
    std::vector<torch::Tensor> points, labels;
    for (const auto& sample : samples) points.push_back(sample.points), labels.push_back(sample.labels);
    return {torch::stack(points), torch::stack(labels)};
  }
};

struct NetImpl : torch::nn::Module {
  torch::nn::Linear in = register_module("in", torch::nn::Linear(2, 64));
  torch::nn::Linear hidden = register_module("hidden", torch::nn::Linear(64, 64));
  torch::nn::Linear out = register_module("out", torch::nn::Linear(64, 2));

  torch::Tensor forward(const torch::Tensor& points) { return out(torch::relu(hidden(torch::relu(in(points))))); }
};
TORCH_MODULE(Net);

lt::Loss loss_of(Net& net, const Batch& batch) {
  const auto scores = net(batch.points);
  const auto correct = (scores.argmax(1) == batch.labels).to(torch::kFloat).mean();
  return {.value = torch::cross_entropy_loss(scores, batch.labels),
          .weight = batch.labels.size(0),  // so that each point counts the same, whatever the batch
          .metrics = {{"accuracy", correct}}};
}

void train(const std::filesystem::path& output, const app::TrainingOptions& options) {
  const app::OutputFolder folder(output);  // one run at a time
  options.seed_generators();
  const auto device = options.choose_device();
  const auto newest = options.snapshot_to_resume(output / "snapshots");
  options.print_resume(newest);

  Net net;
  net->to(device);
  lt::FusedAdamW optimizer(net->parameters(), {.lr = options.learning_rate});
  const Spirals learnt{0, 1000}, held_out{1000, 200};
  const lt::RandomSampler order{.seed = options.unsigned_seed()};
  lt::PinnedPrefetchLoader batches(learnt, options.loader_options(), app::share_of_rank(order));

  lt::Trainer trainer(net, optimizer, loss_of,
                      lt::Accumulate<>{options.gradient_accumulation},
                      app::data_parallel(),
                      lt::When{options.mixed_precision(), lt::MixedPrecision{.type = options.autocast_type()}},
                      lt::BackendFlags{.tf32 = options.tf32, .cudnn_benchmark = options.cudnn_benchmark},
                      lt::When{options.flush_every > 0, lt::CacheFlushEvery<>{.batches = options.flush_every}},
                      lt::ClipGradNorm{1.0},
                      lt::ScheduleLr{.decay = lt::CosineDecay{}, .warmup_steps = options.warmup_steps},
                      options.autopsy_policy(output),
                      app::profile_policy(options, output),
                      lt::Validate{lt::PinnedPrefetchLoader(held_out, options.loader_options(), app::share_of_rank())},
                      lt::ShowProgress{},
                      app::run_log(options, output, *net),
                      lt::When{options.takes_snapshots(), lt::SnapshotEvery{.folder = output / "snapshots",
                                                                            .steps = options.snapshot_every}});
  const auto result = app::fit(trainer, batches, options, newest);
  app::throw_if_interrupted(result);
  if (!app::leads()) return;  // of several processes, the first writes

  lt::save_weights(net, output / "model.safetensors");
  app::Summary summary;
  lt::PinnedPrefetchLoader tests(held_out, options.loader_options());
  summary.set("accuracy", trainer.evaluate(tests).metrics.at("accuracy")).set("steps", result.steps);
  summary.write(output / "summary.json");
  std::cout << summary.text() << std::endl;
}

int main(int argc, char** argv) {
  std::filesystem::path output;
  app::TrainingOptions options{.epochs = 20, .batch_size = 32, .learning_rate = 3e-3};
  app::CommandLine line("template_train", "Learns which of two spirals a point lies on.");
  line.required("output", "DIR", output, "folder for the model, its snapshots and summary.json");
  using enum app::TrainingFlag;
  app::add_training_flags(line, options, {.without = {gradient_checkpointing, cache, on_bad_audio, memory, preflight, memory_cap}});
  return app::run_main(argc, argv, line, [&] { train(output, options); });
}
