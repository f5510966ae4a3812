// SPDX-License-Identifier: MIT
// A small run with everything that has a state: dropout, BatchNorm, metrics, fp16 loss scaling that
// overflows, windows of 3 with a shorter last one, a schedule, averages, early stopping, validation, a user's
// policy, 2 workers. Tests kill such a run, resume it, and compare the result bit for bit with that of an
// uninterrupted run.
#pragma once

#include "support/precompiled.hpp"

#include <looptorch/policies.hpp>
#include <looptorch/trainer.hpp>

#include "support/numbered_samples.hpp"
#include "support/snapshots.hpp"

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace whole_run {

namespace lt = looptorch;

inline constexpr std::int64_t kEpochs = 4, kStepsPerEpoch = 5, kSteps = kEpochs * kStepsPerEpoch;

struct NetImpl : torch::nn::Module {
  NetImpl() {
    register_module("first", first);
    register_module("norm", norm);
    register_module("second", second);
  }
  at::Tensor forward(const at::Tensor& x) {
    return second(torch::dropout(torch::relu(norm(first(x))), 0.2, is_training()));
  }
  torch::nn::Linear first{4, 16};
  torch::nn::BatchNorm1d norm{16};
  torch::nn::Linear second{16, 3};
};
TORCH_MODULE(Net);

using numbered::Batch, numbered::Samples;

inline lt::Loss objective(Net& net, const Batch& batch) {
  const at::Tensor scores = net(batch.features);
  return {.value = torch::nn::functional::cross_entropy(scores, batch.labels),
          .weight = batch.labels.size(0),
          .metrics = {{"accuracy", (scores.argmax(1) == batch.labels).to(at::kDouble).mean()},
                      {"size", batch.labels.size(0)}}};
}

/// A user's policy, which runs after the library's observers.
struct Windows {
  struct State {
    std::int64_t count = 0;
    at::Tensor noise = torch::zeros({2});
  };
  void on_window_end(lt::WindowContext&, State& state) const {
    ++state.count;
    state.noise.add_(torch::rand({2}));
  }
  void state_dict(lt::StateDict& out, State& state) const {
    out.set("count", state.count);
    out.set("noise", state.noise);
  }
  void load_state_dict(const lt::StateDict& in, State& state) const {
    state.count = in.get<std::int64_t>("count");
    state.noise = in.get<at::Tensor>("noise").clone();
  }
};

/// Returns a window's results in one line, to the bit.
inline std::string line_of(const lt::Run& run) {
  char text[160];
  const lt::UpdateView& update = run.updates().front();
  const auto accuracy = update.metrics.find("accuracy");  // none while all windows of an epoch overflowed
  std::snprintf(text, sizeof text, "%lld %a %a %lld %a", static_cast<long long>(run.progress().step),
                update.loss.mean(), accuracy == update.metrics.end() ? -1.0 : accuracy->second.mean(),
                static_cast<long long>(run.progress().samples),
                update.optimizer->param_groups().front().options().get_lr());
  return text;
}

struct Options {
  lt::SnapshotEvery snapshots;
  std::int64_t max_steps = kSteps;
  std::filesystem::path resume = {};
  std::int64_t patience = 100;
  std::function<void(lt::Run&)> on_step = {};
};

/// Returns the contents with tensors of their own.
inline lt::SnapshotContents kept(lt::SnapshotContents contents) {
  for (auto* map : {&contents.model, &contents.averaged})
    for (auto& [name, tensor] : *map) tensor = tensor.detach().clone();
  contents.optimizer = lt::detail::copied(contents.optimizer);
  contents.state = lt::detail::copied(contents.state);
  return contents;
}

/// The end of a run.
struct Ending {
  lt::SnapshotContents contents;
  std::vector<std::string> lines;
  lt::FitResult result;
};

/// The objects of one process.
struct Process {
  explicit Process(Options how) : options(std::move(how)) {
    at::set_num_threads(1);  // so small a network gains nothing from threads
    torch::manual_seed(7);
    net = Net();
    optimizer = std::make_shared<lt::FusedAdamW>(net->parameters(), lt::FusedAdamWOptions{.lr = 0.05});
  }

  /// Runs for the length set by the options.
  Ending run() {
    const lt::LoaderOptions loading{.batch_size = 4, .workers = 2};
    Ending ending;
    const auto log = [&](lt::WindowContext& window) {
      ending.lines.push_back(line_of(window.run));
      if (options.on_step) options.on_step(window.run);
    };
    lt::Trainer trainer(
        net, optimizer, objective, lt::Accumulate<3>{},
        lt::Autocast<lt::fp16>{.initial_scale = 1 << 24, .growth_interval = 4},
        lt::ClipGradNorm{.max_norm = 0.5, .record = true},
        lt::ScheduleLr{.decay = lt::PlateauDecay{.metric = "validation.loss", .patience = 0},
                       .warmup_steps = 4},
        lt::AverageWeights{.rule = lt::Ema{.decay = 0.9}, .average_buffers = true},
        lt::Validate{lt::PinnedPrefetchLoader(Samples{10}, loading, lt::RandomSampler{.seed = 5}),
                     {.every = 2}},
        lt::Validate{lt::PinnedPrefetchLoader(Samples{7}, loading), {.name = "held_out"}},
        lt::StopEarly{.metric = "held_out.loss", .patience = options.patience}, Windows{},
        lt::On{lt::kObserve, log}, options.snapshots);
    ending.result =
        trainer.fit(lt::PinnedPrefetchLoader(Samples{50}, loading, lt::RandomSampler{.seed = 3}),
                    {.epochs = kEpochs, .max_steps = options.max_steps, .resume = options.resume});
    ending.contents = kept(trainer.snapshot());
    return ending;
  }

  Options options;
  Net net{nullptr};
  std::shared_ptr<lt::FusedAdamW> optimizer;
};

// ---- Comparison ----

/// Returns the keys whose values differ, or that only one side has.
template <class Map>
std::string differing(const Map& a, const Map& b, const std::string& of) {
  std::string keys;
  for (const auto& [key, value] : a)
    if (const auto other = b.find(key);
        other == b.end() || !looptorch::testing::bits_equal(value, other->second))
      keys += of + key + " ";
  for (const auto& [key, value] : b)
    if (!a.count(key)) keys += of + key + " ";
  return keys;
}

/// Returns the differences; empty if both are the same, bit for bit.
inline std::string difference(const lt::SnapshotContents& a, const lt::SnapshotContents& b) {
  return (a.step == b.step ? "" : "step ") + differing(a.model, b.model, "model.") +
         differing(a.averaged, b.averaged, "averaged.") +
         differing(a.optimizer.values(), b.optimizer.values(), "optimizer.") +
         differing(a.state.values(), b.state.values(), "state.");
}

inline Ending run(Options options) { return Process(std::move(options)).run(); }

}  // namespace whole_run
