// SPDX-License-Identifier: MIT
// Every policy, optimizer and source of batches on a device: parameters, moments, averages, scales, losses
// and counters are the CPU's, bit for bit. CUDA's kernels round otherwise: there a run must go as far.
#include "support/precompiled.hpp"

#include <looptorch/loop/step/non_finite.hpp>

#include "device/support/training.hpp"
#include "support/device.hpp"
#include "support/snapshots.hpp"

#include <optional>
#include <string>
#include <utility>
#include <vector>

using namespace looptorch::testing;
using training::Optimizer, training::Settings, training::Source, training::Weights;
using Mode = looptorch::CheckpointMode;

namespace {

struct Combination {
  std::string name;
  Settings settings;
};

Settings everything() {
  Settings settings = training::many_policies(Mode::offload);
  settings.epochs = 3;
  settings.clip_value = settings.flush = settings.unfreeze = settings.watch_updates = true;
  settings.resume = true;
  return settings;
}

std::vector<Combination> combinations() {
  std::vector<Combination> all{
      {"no policy", {}},
      {"Accumulate", {.accumulate = 3}},
      {"Autocast<fp16>", {.fp16 = true}},
      {"Autocast<fp16>, Accumulate, ClipGradNorm", {.accumulate = 3, .fp16 = true, .clip_norm = true}},
      {"Autocast<bf16>", {.bf16 = true}},
      {"AverageWeights", {.averages = true}},
      {"AverageWeights, on the host", {.averages = true, .offload_averages = true}},
      {"ClipGradNorm", {.clip_norm = true}},
      {"ClipGradNorm, Accumulate", {.accumulate = 3, .clip_norm = true}},
      {"ClipGradValue", {.clip_value = true}},
      {"CacheFlushEvery, ShowProgress, On", {.flush = true, .progress = true, .watch_updates = true}},
      {"Checkpointed, recompute", {.checkpointed = Mode::recompute}},
      {"Checkpointed, offload", {.checkpointed = Mode::offload}},
      {"Checkpointed, Autocast<fp16>", {.fp16 = true, .checkpointed = Mode::recompute}},
      {"ScheduleLr", {.schedule = true}},
      {"SnapshotEvery, resumed", {.accumulate = 3, .fp16 = true, .averages = true, .resume = true}},
      {"SnapshotEvery, resumed, averages on the host",
       {.averages = true, .offload_averages = true, .resume = true}},
      {"Validate, StopEarly, RestoreBest, averages on the host",
       {.averages = true, .offload_averages = true, .validate = true}},
      {"UnfreezeAt", {.unfreeze = true}},
      {"Validate, StopEarly, RestoreBest", {.averages = true, .validate = true}},
      {"everything", everything()},
  };
  const auto add = [&](const char* name, Settings settings) { all.push_back({name, settings}); };
  for (const std::int64_t window : {1, 3}) {
    add("weights on the device", {.weights = Weights::on_device, .accumulate = window});
    add("sparse weights", {.weights = Weights::sparse, .accumulate = window});
    add("sparse weights on the device", {.weights = Weights::sparse_on_device, .accumulate = window});
  }
  for (const Source source : {Source::pageable, Source::pinned, Source::loader})
    add("batches from the host", {.source = source, .accumulate = 3});
  for (const bool half : {false, true})
    for (const auto& [name, optimizer] :
         {std::pair("FusedAdam", Optimizer::fused_adam), std::pair("FusedSGD", Optimizer::fused_sgd),
          std::pair("torch::optim::AdamW", Optimizer::adamw), std::pair("torch::optim::SGD", Optimizer::sgd),
          std::pair("torch::optim::RMSprop", Optimizer::rmsprop),
          std::pair("torch::optim::Adagrad", Optimizer::adagrad),
          std::pair("two updates", Optimizer::two_updates)})
      add(name, {.optimizer = optimizer, .accumulate = 3, .fp16 = half, .averages = half, .clip_norm = true});
  return all;
}

/// Returns why no micro-batch of a run becomes a graph; empty if some do.
std::string why_eager(const Settings& settings) {
  const bool unread = settings.weights == Weights::on_device || settings.weights == Weights::sparse_on_device;
  if (unread && settings.accumulate > 1) return "weights lie on the device";
  return settings.checkpointed == Mode::offload ? "moved to the host" : "";
}

}  // namespace

TEST_CASE("a run on a device has the CPU's bits, whatever its policies, optimizer and batches") {
  if (!has_device()) return;
  for (const auto& [name, settings] : combinations()) {
    INFO(name);
    const auto on_cpu = training::train(settings, at::kCPU);
    CHECK(on_cpu.result.steps == settings.epochs * settings.steps);
    const auto there = training::train(settings, test_device());
    CHECK(there.result.steps == on_cpu.result.steps);
    if (is_simulated()) CHECK(training::difference(on_cpu, there) == "");
  }
}

TEST_CASE("a run whose micro-batches are graphs has the bits of the eager one") {
  if (!has_device()) return;
  for (auto [name, settings] : combinations()) {
    INFO(name);
    const auto eager = training::train(settings, test_device());
    settings.captures = true;
    const auto replayed = training::train(settings, test_device());
    CHECK(training::difference(eager, replayed) == "");
    CHECK(eager.graphs.empty());
    if (const std::string why = why_eager(settings); why.empty())
      CHECK_THAT(replayed.graphs, !Catch::StartsWith("0 of"));
    else
      CHECK_THAT(replayed.graphs, Catch::StartsWith("0 of") && Catch::Contains(why));
  }
}

TEST_CASE("graphs draw the eager run's numbers, also in layers that run again") {
  if (!has_device()) return;
  for (const auto& checkpointed :
       {std::optional<Mode>(), std::optional(Mode::recompute), std::optional(Mode::light)}) {
    Settings settings{.accumulate = 2, .draws = true, .resume = true, .checkpointed = checkpointed};
    const auto eager = training::train(settings, test_device());
    settings.captures = true;
    const auto replayed = training::train(settings, test_device());
    CHECK(training::difference(eager, replayed) == "");
    CHECK_THAT(replayed.graphs, !Catch::StartsWith("0 of"));
  }
}

TEST_CASE("a run that draws on its device continues from a snapshot as if it had not ended") {
  if (!has_device()) return;
  at::Tensor without;  // a weight after the run that does not recompute
  for (const Mode mode : {Mode::off, Mode::recompute, Mode::offload}) {
    Settings settings{.accumulate = 2, .draws = true, .snapshots = true, .checkpointed = mode};
    const auto whole = training::train(settings, test_device());
    settings.resume = true;
    const auto resumed = training::train(settings, test_device());
    CHECK(maps_equal(whole.contents.model, resumed.contents.model));
    CHECK(whole.result.loss == resumed.result.loss);
    const at::Tensor& weight = whole.contents.model.at("first.weight");
    if (without.defined()) CHECK(torch::equal(weight, without));
    without = weight;
  }
  const auto drawn = training::train({.draws = true}, test_device()),
             plain = training::train({}, test_device());
  CHECK_FALSE(maps_equal(drawn.contents.model, plain.contents.model));
}

TEST_CASE("gradients that are not finite end a run on every device, though its losses are finite") {
  if (!has_device()) return;
  for (const bool recompute : {false, true}) {
    Settings settings{.clip_norm = true, .infinite_slope = true};
    if (recompute) settings.checkpointed = Mode::recompute;
    for (const at::Device device : {at::Device(at::kCPU), test_device()})
      CHECK_THROWS_AS(training::train(settings, device), looptorch::NonFiniteGradient);
  }
}

TEST_CASE("bits that differ are found") {
  if (!has_device()) return;
  const auto one = training::train({}, test_device()),
             other = training::train({.clip_value = true}, test_device());
  CHECK(training::difference(one, one) == "");
  CHECK_THAT(training::difference(one, other), Catch::Contains("model.second.weight"));
}

TEST_CASE("Autocast<> is Autocast<fp16> on a device and Autocast<bf16> on a CPU") {
  if (!has_device()) return;
  const auto weights = [](const Settings& settings, at::Device device) {
    return training::train(settings, device).contents.model;
  };
  const Settings mixed{.mixed_precision = true};
  CHECK(maps_equal(weights(mixed, test_device()), weights({.fp16 = true}, test_device())));
  CHECK(maps_equal(weights(mixed, at::kCPU), weights({.bf16 = true}, at::kCPU)));
  CHECK_FALSE(maps_equal(weights({.fp16 = true}, at::kCPU), weights({.bf16 = true}, at::kCPU)));
  const Settings bf16{.mixed_precision = true, .mixed_type = at::kBFloat16};
  CHECK(maps_equal(weights(bf16, test_device()), weights({.bf16 = true}, test_device())));
  const Settings fp16{.mixed_precision = true, .mixed_type = at::kHalf};
  CHECK(maps_equal(weights(fp16, test_device()), weights({.fp16 = true}, test_device())));
}
