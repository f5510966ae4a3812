// SPDX-License-Identifier: MIT
// A whole training run on a device that is behind the host: pinned batches from a loader's worker, offloaded
// and recomputed blocks, accumulation, clipping and loss scaling give the same weights in every schedule.
// Tests data/batch: copy_stream
#include "support/precompiled.hpp"

#include <looptorch/data/loader/pinned_prefetch_loader.hpp>
#include <looptorch/memory/checkpoint.hpp>
#include <looptorch/trainer.hpp>

#include "support/accelerator/accelerator.hpp"
#include "support/device/schedules.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace lt = looptorch;
namespace sim = looptorch_test::accelerator;

namespace {

struct LayerImpl : torch::nn::Module {
  LayerImpl() { register_module("linear", linear), register_module("drop", drop); }
  at::Tensor forward(const at::Tensor& x) { return x + drop(torch::gelu(linear(x))); }
  torch::nn::Linear linear{8, 8};
  torch::nn::Dropout drop{0.3};
};
TORCH_MODULE(Layer);

struct NetImpl : torch::nn::Module {
  explicit NetImpl(lt::CheckpointMode mode) : mode(mode) {
    register_module("first", first), register_module("second", second), register_module("head", head);
  }
  at::Tensor forward(at::Tensor x) {
    x = lt::checkpoint({.mode = mode}, first, x);
    return head(lt::checkpoint({.mode = mode}, second, x));
  }
  lt::CheckpointMode mode;
  Layer first, second;
  torch::nn::Linear head{8, 3};
};
TORCH_MODULE(Net);

struct Batch {
  at::Tensor features, labels;
};
struct Samples {
  [[nodiscard]] std::int64_t size() const { return 7; }
  [[nodiscard]] Batch get(std::int64_t i) const {
    return {(torch::arange(8, at::kFloat) * static_cast<double>(i + 1)).sin(), torch::tensor(i % 3)};
  }
};

lt::Loss objective(Net& net, const Batch& batch) {
  const at::Tensor scores = net->forward(batch.features).to(at::kFloat);
  return {.value = torch::nn::functional::cross_entropy(scores, batch.labels),
          .weight = batch.labels.size(0)};
}

/// Returns the weights after two epochs of two windows, whose batches outnumber the loader's slots.
std::vector<at::Tensor> train(lt::CheckpointMode mode) {
  torch::manual_seed(7);
  Net net(mode);
  net->to(sim::device(0));
  lt::FusedAdamW adamw(net->parameters(), {.lr = 0.01});
  lt::Trainer trainer(net, adamw, objective, lt::Accumulate<2>{}, lt::ClipGradNorm{1.0},
                      lt::Autocast<lt::fp16>{.initial_scale = 64});
  trainer.fit(
      lt::PinnedPrefetchLoader(Samples{}, {.batch_size = 2, .workers = 1, .prefetch = 1, .pin = true}),
      {.epochs = 2});
  std::vector<at::Tensor> weights;
  for (const at::Tensor& weight : net->parameters()) weights.push_back(weight.detach().cpu());
  return weights;
}

bool same(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  for (std::size_t i = 0; i < a.size(); ++i)
    if (!at::equal(a[i], b[i])) return false;
  return a.size() == b.size();
}

TEST_CASE("a training run has the same weights in every schedule of the device") {
  const std::vector<at::Tensor> expected = train(lt::CheckpointMode::off);
  CHECK(at::isfinite(expected[0]).all().item<bool>());
  const int schedules = device_tests::schedules(200);
  int wrong = 0;
  for (int seed = 0; seed < schedules; ++seed) {
    const sim::With with({.behind_host = true, .seed = static_cast<std::uint64_t>(seed)});
    const auto mode = seed % 2 ? lt::CheckpointMode::offload : lt::CheckpointMode::recompute;
    wrong += !same(train(mode), expected);
  }
  CHECK(wrong == 0);
  CHECK(sim::violations().empty());
  sim::finish_all();
  CHECK(sim::pinned_bytes() == 0);
}

}  // namespace
