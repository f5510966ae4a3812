// SPDX-License-Identifier: MIT
// Training by graphs on LibTorch's own code for CUDA, over a runtime that needs no GPU: what is recorded and
// what is not, and what memory is left. The net needs no library of NVIDIA's.
// Tests graph: host_copy_watch
#include "support/precompiled.hpp"

#include <looptorch/memory/checkpoint.hpp>
#include <looptorch/memory/empty_cache.hpp>
#include <looptorch/policies/capture_graphs.hpp>
#include <looptorch/policies/clip_grad_norm.hpp>
#include <looptorch/trainer.hpp>

#include "cuda_runtime/runtime.hpp"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace lt = looptorch;
namespace runtime = looptorch_test::cuda_runtime;
using Catch::Contains, Catch::StartsWith;

namespace {

const c10::Device kDevice(c10::kCUDA, 0);
constexpr std::int64_t kWidth = 1000;

struct NetImpl : torch::nn::Module {
  explicit NetImpl(bool runs_again = false) : recomputed(runs_again) {
    weight = register_parameter("weight", at::ones({kWidth}, at::TensorOptions(kDevice)));
  }
  at::Tensor forward(const at::Tensor& x) {
    const auto layer = [this](const at::Tensor& input) {
      return torch::dropout(input * weight, 0.1, is_training()).tanh();
    };
    return recomputed ? lt::checkpoint(layer, x) : layer(x);
  }
  at::Tensor weight;
  bool recomputed;
};
TORCH_MODULE(Net);

struct Batch {
  at::Tensor x;
};
std::vector<Batch> batches(const std::vector<std::int64_t>& rows) {
  std::vector<Batch> all;
  for (const std::int64_t count : rows) all.push_back({at::ones({count, kWidth})});
  return all;
}

/// Waits for the device in each batch of five rows. In one of seven rows it copies from pinned memory, and
/// in one of eight to the host, without a wait.
struct Objective {
  lt::Loss operator()(Net& net, const Batch& batch) const {
    const at::Tensor y = net(batch.x);
    if (batch.x.size(0) == 5) (void)y.sum().item<double>();
    if (batch.x.size(0) == 7) (void)pinned.to(kDevice, /*non_blocking=*/true);
    if (batch.x.size(0) == 8) (void)y.detach().to(at::kCPU, /*non_blocking=*/true);
    return {.value = y.mean(), .weight = weight(batch)};
  }
  at::Tensor pinned = at::ones({kWidth}).pin_memory();

  double weight(const Batch& batch) const { return static_cast<double>(batch.x.size(0)); }
};

std::string train(const std::vector<Batch>& data, std::int64_t epochs, bool recomputed = false) {
  std::string said;
  Net net(recomputed);
  lt::FusedAdamW adamw(net->parameters(), {.lr = 0.05});
  lt::Trainer trainer(net, adamw, Objective{}, lt::ClipGradNorm{1.0},
                      lt::CaptureGraphs{.report = [&](const std::string& text) { said = text; }});
  (void)trainer.fit(data, {.epochs = epochs});
  return said;
}

}  // namespace

TEST_CASE("everything that a micro-batch and its window's end issue is recorded") {
  const auto before = runtime::counts();
  for (const bool recomputed : {false, true})
    CHECK_THAT(train(batches({4, 4, 6, 4, 6, 6, 4, 6}), 4, recomputed),
               StartsWith("28 of 32 micro-batches ran as graphs, of which there are 2") &&
                   Contains("the ends of 28 windows"));
  CHECK(runtime::counts().escaped_kernels == before.escaped_kernels);
  CHECK(runtime::counts().captured_host_copies == before.captured_host_copies);
}

TEST_CASE("forms go on becoming graphs after one that cannot") {
  const std::string said = train(batches({4, 4, 4, 5, 5, 5, 6, 6, 6}), 4);
  CHECK_THAT(said, StartsWith("20 of 36 micro-batches ran as graphs, of which there are 2") &&
                       Contains("ran eagerly: it cannot be captured: CUDA error"));
}

TEST_CASE("a copy between host and device that does not wait is in no graph") {
  for (const auto& [rows, direction] : {std::pair(7, "from the host"), std::pair(8, "to the host")}) {
    const auto before = runtime::counts().captured_host_copies;
    const std::string said = train(batches({4, 4, 4, rows, rows, rows, 4}), 4);
    CHECK_THAT(said, StartsWith("14 of 28 micro-batches ran as graphs, of which there are 1") &&
                         Contains("it cannot be captured: copy_ copies") && Contains(direction));
    CHECK(runtime::counts().captured_host_copies > before);  // recorded, and given up
  }
}

TEST_CASE("a fit by graphs leaves no memory, and its later epochs need no more") {
  const auto data = batches({4, 5, 6, 4, 5, 6, 4, 5, 6});
  (void)train(data, 2);
  (void)lt::empty_cache(kDevice);
  const std::int64_t left = runtime::counts().device_bytes;
  (void)train(data, 2);
  const std::int64_t held = runtime::counts().device_bytes;
  (void)lt::empty_cache(kDevice);
  CHECK(runtime::counts().device_bytes == left);
  (void)train(data, 20);
  CHECK(runtime::counts().device_bytes <= held);
  (void)lt::empty_cache(kDevice);
  CHECK(runtime::counts().graphs_alive == 0);
}
