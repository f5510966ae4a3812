// SPDX-License-Identifier: MIT
// Simulated device only. Counts the launches, operator calls and waits of a step, by policy and by optimizer,
// and compares them with the tables in docs/performance/step.md. LOOPTORCH_WRITE_LAUNCHES=1 writes the tables
// there.
#include "support/precompiled.hpp"

#include <looptorch/base/libtorch_version.hpp>
#include <looptorch/layers/linear_node.hpp>
#include <looptorch/optim/fused_adam.hpp>
#include <looptorch/optim/fused_sgd.hpp>
#include <looptorch/optim/gradients/finite_gradients.hpp>
#include <looptorch/optim/muon.hpp>
#include <looptorch/policies/autocast.hpp>
#include <looptorch/policies/average_weights.hpp>
#include <looptorch/policies/capture_graphs.hpp>
#include <looptorch/policies/clip_grad_norm.hpp>
#include <looptorch/policies/clip_grad_value.hpp>
#include <looptorch/policies/schedule_lr.hpp>
#include <looptorch/trainer.hpp>

#include "device/support/page_table.hpp"
#include "support/accelerator/accelerator.hpp"
#include "support/accelerator/operator_calls.hpp"
#include "support/device.hpp"

#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace lt = looptorch;
namespace sim = looptorch_test::accelerator;
using lt::testing::test_device, lt::testing::PageTable;

namespace {

const std::string kColumns =
    "| launches, 8 tensors | 480 tensors | operator calls, 8 tensors | 480 tensors | waits |";
constexpr std::int64_t kFew = 8, kMany = 480;  // tensors of a model

/// Layers of a weight and a bias each: LibTorch's, or as looptorch::Linear computes.
struct NetImpl : torch::nn::Module {
  NetImpl(std::int64_t tensors, bool try_linear_node) : try_linear_node(try_linear_node) {
    for (std::int64_t i = 0; i < tensors / 2; ++i) layers->push_back(torch::nn::Linear(4, 4));
    register_module("layers", layers);
  }
  at::Tensor forward(at::Tensor x) {
    for (const auto& each : *layers) {
      auto& layer = *each->as<torch::nn::Linear>();
      x = try_linear_node ? lt::linear_node(x, layer.weight, layer.bias) : layer.forward(x);
    }
    return x;
  }
  bool try_linear_node;
  torch::nn::ModuleList layers;
};
TORCH_MODULE(Net);

Net make_net(std::int64_t tensors, bool try_linear_node) {
  torch::manual_seed(0);
  Net net(tensors, try_linear_node);
  net->to(test_device());
  return net;
}

/// What a step asks of the device.
struct Asked {
  std::int64_t launches = 0, calls = 0, waits = 0;
  std::map<std::string, std::int64_t> by_name = {};

  friend Asked operator-(Asked a, const Asked& b) {
    a.launches -= b.launches, a.calls -= b.calls, a.waits -= b.waits;
    for (const auto& [name, count] : b.by_name) a.by_name[name] -= count;
    return a;
  }
  friend Asked operator*(std::int64_t factor, Asked a) {
    a.launches *= factor, a.calls *= factor, a.waits *= factor;
    for (auto& [name, count] : a.by_name) count *= factor;
    return a;
  }
};

template <class Run>
Asked count(const Run& run) {
  const sim::CountWaits device;
  const sim::CountOperatorCalls operators;
  const std::int64_t idle = sim::idling_event_waits();
  run();
  const sim::Counts counts = device.counts();
  return {counts.cuda_launches, operators.total(), counts.host_waits + sim::idling_event_waits() - idle,
          operators.by_name()};
}

// ---- Policies ----

struct Settings {
  std::int64_t accumulate = 1;
  bool averages = false, bf16 = false, captures = false, clip_norm = false, clip_value = false, fp16 = false,
       metrics = false, try_linear_node = false, record = false, schedule = false,
       weights = false;  ///< Those of losses are on the device.
};

struct Objective {
  bool reports;
  at::Tensor weight;  // on the device; undefined: the batch's size
  lt::Loss operator()(Net& net, const at::Tensor& x) const {
    const at::Tensor y = net(x);
    lt::Loss loss{.value = (y - x).abs().mean(), .weight = static_cast<double>(x.size(0))};
    if (weight.defined()) loss.weight = weight;
    if (reports) loss.metrics.push_back({"size", y.detach().abs().mean()});
    return loss;
  }
};

Asked fit(const Settings& on, std::int64_t tensors, std::int64_t steps) {
  Net net = make_net(tensors, on.try_linear_node);
  lt::FusedAdamW adamw(net->parameters(), {.lr = 1e-3});
  const at::Tensor weight = on.weights ? at::full({}, 2.0, at::TensorOptions(test_device())) : at::Tensor();
  lt::Trainer trainer(net, adamw, Objective{on.metrics, weight}, lt::Accumulate<>{on.accumulate},
                      lt::When{on.fp16, lt::Autocast<lt::fp16>{.initial_scale = 1024}},
                      lt::When{on.bf16, lt::Autocast<lt::bf16>{}},
                      lt::When{on.averages, lt::AverageWeights{}},
                      lt::When{on.clip_norm, lt::ClipGradNorm{.max_norm = 0.5, .record = on.record}},
                      lt::When{on.clip_value, lt::ClipGradValue{0.05}},
                      lt::When{on.schedule, lt::ScheduleLr{.warmup_steps = 3}},
                      lt::When{on.captures, lt::CaptureGraphs{.report = [](const std::string&) {}}});
  const std::vector<at::Tensor> batches(static_cast<std::size_t>(steps * on.accumulate),
                                        at::ones({2, 4}, at::TensorOptions(test_device())));
  return count([&] { trainer.fit(batches, {.epochs = 1}); });
}

/// Of one step in the middle of a fit.
Asked step(const Settings& settings, std::int64_t tensors) {
  constexpr std::int64_t kSteps = 4;
  const Asked asked = fit(settings, tensors, 2 * kSteps) - fit(settings, tensors, kSteps);
  CHECK(asked.launches % kSteps == 0);
  CHECK(asked.calls % kSteps == 0);
  Asked one{asked.launches / kSteps, asked.calls / kSteps, asked.waits / kSteps};
  for (const auto& [name, count] : asked.by_name) one.by_name[name] = count / kSteps;
  return one;
}

struct Row {
  std::string name;
  Settings settings;
};

const std::vector<Row> kRows{
    {"`Accumulate<4>`, difference from four plain steps", {.accumulate = 4}},
    {"`Autocast<bf16>`", {.bf16 = true}},
    {"`Accumulate<4>`, `Autocast<bf16>`, `looptorch::Linear`, difference from four plain steps",
     {.accumulate = 4, .bf16 = true, .try_linear_node = true}},
    {"`Autocast<fp16>`", {.fp16 = true}},
    {"`AverageWeights`", {.averages = true}},
    {"`ClipGradNorm`", {.clip_norm = true}},
    {"`ClipGradNorm`, recorded", {.clip_norm = true, .record = true}},
    {"`ClipGradValue`", {.clip_value = true}},
    {"`ScheduleLr`", {.schedule = true}},
    {"a metric of the objective", {.metrics = true}},
    {"weights on the device", {.weights = true}},
    {"`Accumulate<4>`, weights on the device, difference from four plain steps",
     {.accumulate = 4, .weights = true}},
    {"`Autocast<fp16>`, `AverageWeights`, `ClipGradNorm`, `ScheduleLr`",
     {.averages = true, .clip_norm = true, .fp16 = true, .schedule = true}},
};

std::string line(const std::string& name, const Asked& few, const Asked& many) {
  return lt::message("| ", name, " | ", few.launches, " | ", many.launches, " | ", few.calls, " | ",
                     many.calls, " | ", few.waits, " |");
}

void show(const std::string& name, const Asked& asked) {
  if (!std::getenv("LOOPTORCH_SHOW_OPERATORS")) return;
  std::cout << "== " << name << '\n';
  for (const auto& [of, count] : asked.by_name)
    if (count != 0) std::cout << "  " << count << ' ' << of << '\n';
}

std::vector<std::string> table_of_policies() {
  const Asked few = step({}, kFew), many = step({}, kMany);
  show("no policy", few);
  std::vector<std::string> table{line("no policy", few, many)};
  for (const auto& [name, settings] : kRows) {
    const std::int64_t steps = settings.accumulate;
    const Asked more = step(settings, kFew) - steps * few;
    show(name, more);
    table.push_back(line(name, more, step(settings, kMany) - steps * many));
  }
  return table;
}

// ---- Graphs ----

std::vector<std::string> table_of_graphs() {
  std::vector<std::string> table;
  const auto add = [&](const std::string& name, Settings settings) {
    settings.captures = true;
    const Asked few = step(settings, kFew);
    show(name, few);
    table.push_back(line(name, few, step(settings, kMany)));
  };
  add("no other policy", {});
  add("`Accumulate<4>`", {.accumulate = 4});
  add("`Autocast<fp16>`", {.fp16 = true});
  add("`AverageWeights`", {.averages = true});
  add("`ClipGradNorm`", {.clip_norm = true});
  add("`ScheduleLr`", {.schedule = true});
  add("`Autocast<fp16>`, `AverageWeights`, `ClipGradNorm`, `ScheduleLr`",
      {.averages = true, .clip_norm = true, .fp16 = true, .schedule = true});
  return table;
}

// ---- Optimizers ----

/// Matrices, which all optimizers update.
std::vector<at::Tensor> parameters(std::int64_t count) {
  std::vector<at::Tensor> parameters;
  for (std::int64_t i = 0; i < count; ++i) {
    parameters.push_back(at::ones({4, 4}, at::TensorOptions(test_device())).set_requires_grad(true));
    parameters.back().mutable_grad() = at::ones_like(parameters.back());
  }
  return parameters;
}

template <class Optimizer, class... Options>
Asked update(std::int64_t tensors, const Options&... options) {
  Optimizer optimizer(parameters(tensors), options...);
  optimizer.step();  // which makes the moments
  return count([&] { optimizer.step(); });
}

template <class Optimizer, class... Options>
std::string line_of(const std::string& name, const Options&... options) {
  const Asked few = update<Optimizer>(kFew, options...);
  show(name, few);
  return line(name, few, update<Optimizer>(kMany, options...));
}

std::vector<std::string> table_of_optimizers() {
  namespace optim = torch::optim;
  return {line_of<lt::FusedAdamW>("`FusedAdamW`"),
          line_of<lt::FusedAdam>("`FusedAdam`, `amsgrad`", lt::FusedAdamOptions{.amsgrad = true}),
          line_of<lt::FusedSGD>("`FusedSGD`, momentum", lt::FusedSGDOptions{.momentum = 0.9}),
          line_of<lt::Muon>("`Muon`"),
          line_of<optim::AdamW>("`torch::optim::AdamW`", optim::AdamWOptions(1e-3)),
          line_of<optim::SGD>("`torch::optim::SGD`, momentum", optim::SGDOptions(1e-3).momentum(0.9))};
}

void compare(const std::string& head, const std::vector<std::string>& table) {
  PageTable page("performance/step.md", head);
  if (std::getenv("LOOPTORCH_WRITE_LAUNCHES")) page.write(table);
  CHECK(page.rows() == table);
}

/// Counts depend on how LibTorch composes operators; the tables are of this version, built for CUDA.
bool is_version_of_tables() {
  return TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR == 11 && sim::CountOperatorCalls::is_supported();
}

}  // namespace

TEST_CASE("a step launches and calls what docs/performance/step.md says, and no more") {
  if (!is_version_of_tables()) return;
  compare("| a step with " + kColumns, table_of_policies());
}

TEST_CASE("a captured step launches and calls what docs/performance/step.md says, and no more") {
  if (!is_version_of_tables()) return;
  compare("| a captured step with " + kColumns, table_of_graphs());
}

/// Gradients in fp32 and in bf16 by turns, as of norms among 16-bit weights.
std::vector<at::Tensor> mixed_gradients(std::int64_t tensors) {
  std::vector<at::Tensor> gradients;
  for (std::int64_t i = 0; i < tensors; ++i)
    gradients.push_back(
        at::ones({4, 4}, at::TensorOptions(test_device()).dtype(i % 2 == 0 ? at::kFloat : at::kBFloat16)));
  return gradients;
}

TEST_CASE("launches of clipping, averages and unscaling do not grow with each tensor") {
  if (!is_version_of_tables()) return;
  constexpr std::int64_t kTensors = 200, kMost = 40;  // at 30 to 110 tensors a launch
  const std::int64_t plain = step({}, kTensors).launches, cast = step({.bf16 = true}, kTensors).launches;
  CHECK(step({.clip_norm = true}, kTensors).launches - plain < kMost);
  CHECK(step({.clip_value = true}, kTensors).launches - plain < kMost);
  CHECK(step({.averages = true}, kTensors).launches - plain < kMost);
  CHECK(step({.fp16 = true}, kTensors).launches - cast < kMost);
  std::vector<at::Tensor> gradients = mixed_gradients(kTensors);
  namespace detail = lt::detail;
  CHECK(count([&] { (void)detail::joined_norm(detail::norms_of_each(gradients, 2), 2); }).launches < kMost);
  CHECK(count([&] { (void)detail::any_non_finite(gradients); }).launches < kMost);
  lt::GradientScale by_number, by_tensor;
  by_number.multiply(0.5), by_tensor.multiply(at::ones({}, at::TensorOptions(test_device())));
  CHECK(count([&] { by_number.flush(gradients); }).launches < kMost);
  CHECK(count([&] { by_tensor.flush(gradients); }).launches < kMost);
}

TEST_CASE("an optimizer launches and calls what docs/performance/step.md says, and no more") {
  if (!is_version_of_tables()) return;
  compare("| an update by " + kColumns, table_of_optimizers());
}
