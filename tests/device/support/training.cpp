// SPDX-License-Identifier: MIT
#include "device/support/training.hpp"

#include <looptorch/policies.hpp>
#include <looptorch/policies/autopsy.hpp>
#include <looptorch/policies/capture_graphs.hpp>
#include <looptorch/policies/log_metrics.hpp>
#include <looptorch/policies/profile.hpp>
#include <looptorch/policies/retry_on_oom.hpp>
#include <looptorch/policies/skip_bad_windows.hpp>
#include <looptorch/trainer.hpp>

#include "support/device.hpp"
#include "support/numbered_samples.hpp"
#include "support/snapshots.hpp"
#include "support/temporary_folder.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace training {
namespace {

namespace lt = looptorch;
using looptorch::testing::bits_equal;
using numbered::Batch, numbered::Samples;

constexpr std::int64_t kBatchSize = 4;

struct BlockImpl : torch::nn::Module {
  explicit BlockImpl(bool draws) : draws(draws) { register_module("linear", linear); }
  at::Tensor forward(const at::Tensor& x) {
    return x + torch::dropout(torch::tanh(linear(x)), 0.3, draws && is_training());
  }
  bool draws;
  torch::nn::Linear linear{8, 8};
};
TORCH_MODULE(Block);

/// Its halves may be on two devices.
struct NetImpl : torch::nn::Module {
  explicit NetImpl(bool draws) : draws(draws) {
    register_module("norm", norm), register_module("first", first);
    register_module("block", block), register_module("second", second);
  }
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor half = torch::dropout(torch::tanh(first(norm(x))), 0.3, draws && is_training());
    return second(block(half.to(second->weight.device())));
  }
  bool draws;
  torch::nn::BatchNorm1d norm{4};
  torch::nn::Linear first{4, 8};
  lt::Checkpointed<Block> block = lt::Checkpointed<Block>(draws);
  torch::nn::Linear second{8, 3};
};
TORCH_MODULE(Net);

/// Micro-batches in an epoch; the last window is shorter than the others, where that is possible.
std::int64_t micro_batches(const Settings& settings) {
  return settings.steps * settings.accumulate - (settings.accumulate > 1 ? 1 : 0);
}

/// Returns batches of 2 to 5 samples.
std::vector<Batch> batches(std::int64_t count, std::int64_t from = 0) {
  std::vector<Batch> result;
  for (std::int64_t i = 0; i < count; ++i) {
    std::vector<Batch> samples;
    for (std::int64_t j = 0; j < 2 + (i * 7 + 2) % 4; ++j)
      samples.push_back(Samples{0}.get(from + i * 5 + j));
    result.push_back(Samples{0}.collate(samples));
  }
  return result;
}

std::vector<Batch> placed(std::vector<Batch> all, Source source, at::Device device) {
  for (Batch& batch : all)
    for (at::Tensor* tensor : {&batch.features, &batch.labels}) {
      if (source == Source::on_device) *tensor = tensor->to(device);
      if (source == Source::pinned && !device.is_cpu()) *tensor = tensor->pin_memory();
    }
  return all;
}

/// The mean over a batch, weighed as the settings say.
struct Objective {
  Weights weights;
  bool reports = false, infinite_slope = false;

  lt::Loss operator()(Net& net, const Batch& batch) const {
    const auto size = static_cast<double>(batch.labels.size(0));
    const double weight = is_sparse() && batch.labels.size(0) == 3 ? 0.0 : size;
    const at::Tensor logits = net(batch.features).to(at::kFloat), labels = batch.labels.to(logits.device());
    lt::Loss loss{.value = torch::nn::functional::cross_entropy(logits, labels), .weight = weight};
    if (weights == Weights::on_device || weights == Weights::sparse_on_device)
      loss.weight = torch::full({}, weight, logits.options().dtype(at::kDouble));
    if (infinite_slope) {
      const at::Tensor& weight = net->second->weight;
      loss.value = loss.value + (weight - weight.detach()).sum().sqrt().to(loss.value.device());
    }
    if (reports) loss.metrics.push_back({"right", logits.argmax(1).eq(labels).to(at::kFloat).mean()});
    return loss;
  }

 private:
  [[nodiscard]] bool is_sparse() const {
    return weights == Weights::sparse || weights == Weights::sparse_on_device;
  }
};

/// True for states that have another form on a device: generators, totals that the host does not know yet,
/// and the unit of weights that it does not know. `Outcome::means` has the totals.
bool has_form_of_its_own(const std::string& key) {
  const auto ends = [&](const char* part) { return key.ends_with(part); };
  return key.starts_with("random.") ||
         (key.starts_with("run.update.") && (ends("sum") || ends("weight") || ends("unit")));
}

/// Copies to the CPU what a run has left.
lt::SnapshotContents on_cpu(lt::SnapshotContents contents) {
  for (auto* map : {&contents.model, &contents.averaged})
    for (auto& [name, tensor] : *map) tensor = tensor.detach().cpu().clone();
  for (auto* state : {&contents.optimizer, &contents.state}) {
    lt::StateDict moved;
    for (const auto& [key, value] : state->values()) {
      if (has_form_of_its_own(key)) continue;
      const auto* tensor = value.get_if<at::Tensor>();
      moved.set(key, tensor && tensor->defined() ? lt::StateDict::Value(tensor->cpu().clone()) : value);
    }
    *state = std::move(moved);
  }
  return contents;
}

/// One process of a run.
struct Process {
  const Settings& settings;
  at::Device device;
  const std::filesystem::path& folder;
  std::optional<std::int64_t> max_steps;
  bool resumes;
  mutable std::string graphs = {};

  template <class Trainer>
  Outcome fit(Trainer& trainer) const {
    const lt::FitOptions options{
        .epochs = settings.epochs, .max_steps = max_steps, .resume = resumes ? folder : ""};
    const std::int64_t count = micro_batches(settings);
    const auto source = placed(batches(count), settings.source, device);
    const auto held_out = placed(batches(3, 1000), settings.source, device);
    lt::PinnedPrefetchLoader loader(Samples{count * kBatchSize}, {.batch_size = kBatchSize, .workers = 2});
    Outcome outcome;
    if (settings.moves_to) {
      lt::FitOptions first = options;
      first.epochs = settings.epochs - 1;
      trainer.fit(source, first);
      trainer.model()->to(*settings.moves_to);
    }
    const looptorch_test::accelerator::CountWaits counted;
    const auto before = looptorch_test::accelerator::idling_event_waits();
    outcome.result =
        settings.source == Source::loader ? trainer.fit(loader, options) : trainer.fit(source, options);
    outcome.waits = counted.counts().host_waits + looptorch_test::accelerator::idling_event_waits() - before;
    outcome.graphs = graphs;
    outcome.contents = on_cpu(trainer.snapshot());
    outcome.evaluated = trainer.evaluate(held_out, Objective{Weights::known}).loss;
    for (const lt::UpdateView& update : trainer.updates()) {
      outcome.means.push_back(update.loss.mean());
      for (const auto& [name, metric] : update.metrics) outcome.means.push_back(metric.mean());
    }
    return outcome;
  }
};

/// Returns the same weights each time, whatever other threads draw.
Net make_net(const Process& process) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  at::set_num_threads(1);
  torch::manual_seed(3);
  Net net(process.settings.draws);
  net->to(process.device);
  if (const auto second = process.settings.second) net->block->to(*second), net->second->to(*second);
  return net;
}

/// Says what ran as graphs.
auto capturing(const Process& process) {
  return lt::When{
      process.settings.captures,
      lt::CaptureGraphs{.warmup = 1,
                        .report = [&graphs = process.graphs](const std::string& text) { graphs = text; }}};
}

lt::Autocast<lt::fp16> half(const Settings& settings) {
  return {.initial_scale = settings.loss_scale, .growth_interval = 3};
}

struct Nowhere {
  std::FILE* out = std::fopen("/dev/null", "w");
  ~Nowhere() { std::fclose(out); }
};

Outcome with_all_policies(const Process& process) {
  const Settings& on = process.settings;
  Net net = make_net(process);
  lt::FusedAdamW adamw(net->parameters(), {.lr = 0.05});
  const Nowhere nowhere;
  const auto held_out = placed(batches(3, 500), on.source, process.device);
  lt::Trainer trainer(
      net, adamw, Objective{on.weights, on.metrics, on.infinite_slope}, lt::Accumulate<>{on.accumulate},
      capturing(process), lt::When{on.fp16, half(on)}, lt::When{on.bf16, lt::Autocast<lt::bf16>{}},
      lt::When{on.mixed_precision, lt::Autocast<>{half(on), on.mixed_type}},
      lt::When{on.averages,
               lt::AverageWeights{
                   .rule = lt::Ema{.decay = 0.8}, .average_buffers = true, .offload = on.offload_averages}},
      lt::When{on.clip_norm, lt::ClipGradNorm{.max_norm = 0.5, .record = true}},
      lt::When{on.clip_value, lt::ClipGradValue{0.05}},
      lt::When{on.deterministic, lt::BackendFlags{.deterministic = true}},
      lt::When{on.flush, lt::CacheFlushEvery<4>{}},
      lt::When{on.logs, lt::LogMetrics{.folder = process.folder / "log"}},
      lt::When{on.profiles, lt::Profile{.folder = process.folder / "trace",
                                        .first = 2,
                                        .last = 3,
                                        .report = [](const std::string&) {}}},
      lt::When{on.progress, lt::ShowProgress{.out = nowhere.out, .live_seconds = 0, .line_seconds = 0}},
      lt::When{on.schedule, lt::ScheduleLr{.warmup_steps = 3}},
      lt::When{on.snapshots || on.resume,
               lt::SnapshotEvery{.folder = process.folder, .steps = 3, .on_signals = false}},
      lt::When{on.unfreeze, lt::UnfreezeAt{{.epoch = 1, .patterns = {"first.*"}}}},
      lt::When{on.validate, lt::Validate{held_out, {.every = 3}}},
      lt::When{on.validate, lt::StopEarly{.metric = "validation.loss", .patience = 100}},
      lt::When{on.validate, lt::RestoreBest{}},
      lt::When{on.watch_updates, lt::On{lt::kObserve, [](lt::UpdateContext&) {}}},
      lt::When{on.checkpointed.has_value(), lt::Checkpointed<Block>{lt::CheckpointOptions{
                                                .mode = on.checkpointed.value_or(lt::CheckpointMode::off)}}});
  return process.fit(trainer);
}

template <class By>
Outcome with(const Process& process, Net net, By&& optimizer) {
  const Settings& on = process.settings;
  lt::Trainer trainer(net, optimizer, Objective{on.weights}, lt::Accumulate<>{on.accumulate},
                      capturing(process), lt::When{on.fp16, half(on)},
                      lt::When{on.averages, lt::AverageWeights{.rule = lt::Ema{.decay = 0.8},
                                                               .offload = on.offload_averages}},
                      lt::When{on.clip_norm, lt::ClipGradNorm{0.5}});
  return process.fit(trainer);
}

Outcome with_rescue(const Process& process) {
  const Settings& on = process.settings;
  Net net = make_net(process);
  lt::FusedAdamW adamw(net->parameters(), {.lr = 0.05});
  lt::Trainer trainer(net, adamw, Objective{on.weights}, lt::Accumulate<>{on.accumulate},
                      lt::When{on.rescue == Rescue::autopsy, lt::Autopsy{}},
                      lt::When{on.rescue == Rescue::skip_bad_windows, lt::SkipBadWindows{}},
                      lt::When{on.rescue == Rescue::retry_on_oom, lt::RetryOnOom{}});
  return process.fit(trainer);
}

/// Two optimizers with a part of the model each; the second takes every other window.
Outcome with_two_updates(const Process& process) {
  const Settings& on = process.settings;
  Net net = make_net(process);
  lt::FusedAdamW one(net->first->parameters(), {.lr = 0.05});
  lt::FusedSGD two(net->second->parameters(), {.lr = 0.05, .momentum = 0.9});
  lt::Trainer trainer(
      net, lt::Update{one, Objective{on.weights}}, lt::Update{two, Objective{on.weights}, {.every = 2}},
      lt::Accumulate<>{on.accumulate}, capturing(process), lt::When{on.fp16, half(on)},
      lt::When{on.averages,
               lt::AverageWeights{.rule = lt::Ema{.decay = 0.8}, .offload = on.offload_averages}},
      lt::When{on.clip_norm, lt::ClipGradNorm{0.5}});
  return process.fit(trainer);
}

/// LibTorch's own optimizers share a Trainer by their base class.
std::shared_ptr<torch::optim::Optimizer> plain_optimizer(Optimizer kind,
                                                         const std::vector<at::Tensor>& parameters) {
  namespace optim = torch::optim;
  switch (kind) {
    case Optimizer::adamw:
      return std::make_shared<optim::AdamW>(parameters, optim::AdamWOptions(0.05));
    case Optimizer::rmsprop:
      return std::make_shared<optim::RMSprop>(parameters, optim::RMSpropOptions(0.01).momentum(0.5));
    case Optimizer::adagrad:
      return std::make_shared<optim::Adagrad>(parameters, optim::AdagradOptions(0.05));
    default:
      return std::make_shared<optim::SGD>(parameters, optim::SGDOptions(0.05).momentum(0.9));
  }
}

Outcome run(const Process& process) {
  const Optimizer kind = process.settings.optimizer;
  if (process.settings.rescue != Rescue::none) return with_rescue(process);
  if (kind == Optimizer::fused_adamw) return with_all_policies(process);
  if (kind == Optimizer::two_updates) return with_two_updates(process);
  Net net = make_net(process);
  if (kind == Optimizer::fused_adam)
    return with(process, net, lt::FusedAdam(net->parameters(), {.lr = 0.05, .amsgrad = true}));
  if (kind == Optimizer::fused_sgd)
    return with(process, net,
                lt::FusedSGD(net->parameters(), {.lr = 0.05, .momentum = 0.9, .nesterov = true}));
  return with(process, net, plain_optimizer(kind, net->parameters()));
}

/// Returns the keys whose values differ, or that only one side has.
template <class Map>
std::string differing(const Map& a, const Map& b, const std::string& of) {
  std::string keys;
  for (const auto& [key, value] : a)
    if (const auto other = b.find(key); other == b.end() || !bits_equal(value, other->second))
      keys += of + key + " ";
  for (const auto& [key, value] : b)
    if (!a.count(key)) keys += of + key + " ";
  return keys;
}

}  // namespace

Settings many_policies(lt::CheckpointMode mode) {
  return {.source = Source::loader,
          .accumulate = 3,
          .fp16 = true,
          .averages = true,
          .clip_norm = true,
          .schedule = true,
          .validate = true,
          .checkpointed = mode};
}

Outcome train(const Settings& settings, at::Device device) {
  const lt::testing::TemporaryFolder folder;
  const std::filesystem::path path = folder / "snapshots";
  if (!settings.resume) return run({settings, device, path, {}, false});
  (void)run({settings, device, path, settings.steps + 1, false});
  return run({settings, device, path, {}, true});
}

std::string difference(const Outcome& a, const Outcome& b) {
  const auto differ = [](double x, double y) { return x != y && !(std::isnan(x) && std::isnan(y)); };
  std::string all = a.result.steps == b.result.steps ? "" : "steps ";
  if (a.result.skipped != b.result.skipped) all += "skipped ";
  if (differ(a.result.loss, b.result.loss)) all += "loss ";
  if (differ(a.evaluated, b.evaluated)) all += "evaluated ";
  if (!std::ranges::equal(a.means, b.means, std::not_fn(differ))) all += "means ";
  return all + differing(a.contents.model, b.contents.model, "model.") +
         differing(a.contents.averaged, b.contents.averaged, "averaged.") +
         differing(a.contents.optimizer.values(), b.contents.optimizer.values(), "optimizer.") +
         differing(a.contents.state.values(), b.contents.state.values(), "state.");
}

}  // namespace training
