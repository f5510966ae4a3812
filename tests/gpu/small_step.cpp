// SPDX-License-Identifier: MIT
// Measures a training step of a small MLP (64-64-10, batches of 32, fused AdamW) on a device, where the
// host's work is all that shows: by a Trainer under one policy at a time, beside the same by hand, and by
// hand as one CUDA graph. small_step.py has the peers in Python.
#include <looptorch/policies/capture_graphs.hpp>
#include <looptorch/trainer.hpp>

#include "support/device_run.hpp"
#include "support/hand.hpp"

#if __has_include(<cuda_runtime_api.h>)
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAGuard.h>
#endif

#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

namespace lt = looptorch;

namespace {

using namespace bench;

constexpr int kRounds = 3;

class SmallSteps {
 public:
  explicit SmallSteps(DeviceRun run) : run_(run), batches_(make_batches(run.quick ? 20 : 500)) {
    for (Batch& batch : batches_) batch = {batch.features.to(run.device), batch.labels.to(run.device)};
  }

  /// Measures a Trainer under `policies` beside `step(hand)`, which makes one step.
  template <class Step, class... Policies>
  void row(const char* name, std::int64_t micro_batches, Step step, Policies... policies) {
    Net net = make_net();
    net->to(run_.device);
    lt::FusedAdamW optimizer(net->parameters(), {.lr = kRate});
    lt::Trainer trainer(net, optimizer, objective, std::move(policies)...);
    const auto steps = static_cast<std::int64_t>(batches_.size()) / micro_batches;
    Hand hand(batches_, steps * (kRounds + 1), run_.device);

    std::vector<double> ours, by_hand;
    for (std::int64_t round = 0; round <= kRounds; ++round) {  // the first warms up
      TimedBatches timed(run_, batches_, 4 * micro_batches, steps * micro_batches);
      trainer.fit(timed, {.epochs = round + 1});
      const Cost of_ours = timed.cost(steps);
      const Cost of_hand = cost_of(run_, steps, [&] {
        for (std::int64_t i = 0; i < steps; ++i) step(hand);
      });
      if (round == 0) continue;
      ours.push_back(of_ours.ms * 1000), by_hand.push_back(of_hand.ms * 1000);
    }
    print_row(std::string("small MLP: ") + name, median(ours), "us/step", "LibTorch by hand",
              median(by_hand));
  }

  /// Measures the step by hand as one CUDA graph, its batch copied into place before each replay.
  void graph_row() {
#if __has_include(<cuda_runtime_api.h>)
    if (!run_.device.is_cuda()) return;
    const std::vector<Batch> place{{batches_[0].features.clone(), batches_[0].labels.clone()}};
    Hand hand(place, 1, run_.device);
    const c10::cuda::CUDAStreamGuard on(c10::cuda::getStreamFromPool(false, run_.device.index()));
    for (int i = 0; i < 3; ++i) hand.plain_step();
    run_.synchronize();
    at::cuda::CUDAGraph graph;
    graph.capture_begin({0, 0}, cudaStreamCaptureModeThreadLocal);
    hand.plain_step();
    graph.capture_end();
    const auto steps = static_cast<std::int64_t>(batches_.size());
    const Cost cost = cost_of(run_, steps, [&] {
      for (const Batch& batch : batches_) {
        place[0].features.copy_(batch.features, /*non_blocking=*/true);
        place[0].labels.copy_(batch.labels, /*non_blocking=*/true);
        graph.replay();
      }
    });
    print_row("small MLP: by hand, CUDA graph", cost.ms * 1000, "us/step");
#endif
  }

 private:
  DeviceRun run_;
  std::vector<Batch> batches_;
};

void measure(SmallSteps& steps) {
  steps.row("no policy", 1, [](Hand& hand) { hand.plain_step(); });
  steps.row(
      "ClipGradNorm", 1, [](Hand& hand) { hand.clipped_step(); }, lt::ClipGradNorm{1.0});
  steps.row(
      "Autocast<fp16>", 1, [](Hand& hand) { hand.scaled_step(); }, lt::Autocast<lt::fp16>{});
  steps.row(
      "Accumulate<4>", 4, [](Hand& hand) { hand.accumulated_step(); }, lt::Accumulate<4>{});
  steps.row(
      "AverageWeights", 1, [](Hand& hand) { hand.averaged_step(); }, lt::AverageWeights{});
  const lt::CaptureGraphs graphs{
      .report = [](const std::string& text) { std::fprintf(stderr, "%s\n", text.c_str()); }};
  steps.row(
      "CaptureGraphs", 1, [](Hand& hand) { hand.plain_step(); }, graphs);
  steps.row(
      "CaptureGraphs, ClipGradNorm, fp16", 1, [](Hand& hand) { hand.scaled_step(); }, graphs,
      lt::ClipGradNorm{1.0}, lt::Autocast<lt::fp16>{});
  steps.row(
      "CaptureGraphs, Accumulate<4>", 4, [](Hand& hand) { hand.accumulated_step(); }, graphs,
      lt::Accumulate<4>{});
}

}  // namespace

int main(int count, char** words) {
  const DeviceRun run = DeviceRun::of(count, words);
  SmallSteps steps(run);
  const bool measured = attempt(run, "small MLP", [&] { measure(steps); });
  return attempt(run, "CUDA graph", [&] { steps.graph_row(); }) && measured ? 0 : 1;
}
