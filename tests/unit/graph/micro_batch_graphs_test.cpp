// SPDX-License-Identifier: MIT
// Tests graph: graph_generator, graph_records
// Tests base/device: device_graph
#include "support/precompiled.hpp"

#include <looptorch/graph/micro_batch_graphs.hpp>
#include <looptorch/objective/loss.hpp>
#include <looptorch/objective/running_mean.hpp>

#include <memory>
#include <string>
#include <utility>
#include <vector>

using namespace looptorch::detail;
using Target = MicroBatchGraph::Target;

namespace {

/// Counts graphs, and knows its neighbour.
struct FakeGraph final : DeviceGraph {
  explicit FakeGraph(const DeviceGraph* neighbour) : neighbour(neighbour) { ++alive; }
  ~FakeGraph() override { --alive; }
  void begin() override {}
  void end() override {}
  void replay() override {}
  at::Generator copy_generator(at::Generator source) override { return source.clone(); }
  std::uint64_t random_offset() const override { return 0; }
  void set_random_offset(std::uint64_t) override {}
  const DeviceGraph* neighbour;
  static inline int alive = 0;
};

std::unique_ptr<DeviceGraph> make_fake(c10::Device, const DeviceGraph* neighbour) {
  return std::make_unique<FakeGraph>(neighbour);
}

}  // namespace

TEST_CASE("a graph's gradients continue from what parameters have, and from zero where they have none") {
  MicroBatchGraphs graphs;
  std::vector<Target> targets;
  for (int i = 0; i < 3; ++i) {
    at::Tensor parameter = at::ones({2, 3}).t().set_requires_grad(true);
    targets.push_back({parameter, graphs.gradient_of(parameter)});
    CHECK(graphs.gradient_of(parameter).is_same(targets.back().gradient));
    CHECK(targets.back().gradient.strides() == parameter.strides());
    targets.back().gradient.fill_(7);
  }
  targets[1].parameter.mutable_grad() = at::full({3, 2}, 2.0);
  targets[2].parameter.mutable_grad() = targets[2].gradient;
  MicroBatchGraphs::attach(targets, /*zeroed=*/false);
  for (const auto& [parameter, gradient] : targets) CHECK(parameter.grad().is_same(gradient));
  CHECK(targets[0].gradient.eq(0).all().item<bool>());
  CHECK(targets[1].gradient.eq(2).all().item<bool>());
  CHECK(targets[2].gradient.eq(7).all().item<bool>());  // its own, which the window has so far
  CHECK(graphs.keeps_gradients({targets[0].parameter, targets[2].parameter}));

  targets[0].gradient.fill_(7);
  targets[0].parameter.mutable_grad() = at::Tensor();
  CHECK_FALSE(graphs.keeps_gradients({targets[0].parameter}));
  MicroBatchGraphs::attach(targets, /*zeroed=*/true);
  CHECK(targets[0].gradient.eq(7).all().item<bool>());  // left to the graph
  targets[1].parameter.mutable_grad() = at::ones({3, 2});
  CHECK_FALSE(graphs.keeps_gradients({targets[0].parameter, targets[1].parameter}));
}

TEST_CASE("a graph's sum of a window's losses is that of RunningMean, of a mean and its weight or of a sum") {
  using looptorch::Loss, looptorch::RunningMean;
  LossBuffers buffers(c10::kCPU);
  const at::Tensor value = at::full({1}, 0.1F);
  RunningMean by_mean, by_sum;
  by_mean.add(value.reshape({}), 3.0);
  by_sum.add(Loss{.weight = 3.0, .sum = value});
  buffers.weight.set(3);
  buffers.set_sum(Loss{.value = value});
  CHECK(buffers.sum.item<double>() == by_mean.totals().sum);
  buffers.set_sum(Loss{.sum = value});
  CHECK(buffers.sum.item<double>() == by_sum.totals().sum);
}

TEST_CASE("graphs share a pool, and go when a parameter moves, freezes or a module changes its mode") {
  torch::nn::Sequential net(torch::nn::Linear(2, 2), torch::nn::BatchNorm1d(2));
  const at::Tensor outside = at::ones({1}).set_requires_grad(true);
  MicroBatchGraphs graphs;
  const auto entry = [&]() -> MicroBatchGraph& { return graphs.entry("form", *net, {outside}); };
  const auto have_graph = [&] { entry().graph = graphs.make(&make_fake, c10::kCPU); };
  const auto changes = [&](auto&& change) {
    have_graph();
    CHECK(entry().graph != nullptr);
    change();
    return entry().graph == nullptr;
  };
  (void)entry();
  CHECK_FALSE(changes([] {}));
  CHECK(changes([&] { net[0]->as<torch::nn::Linear>()->weight.set_data(at::ones({2, 2})); }));
  CHECK(changes([&] { net[1]->as<torch::nn::BatchNorm1d>()->running_mean.set_data(at::ones({2})); }));
  CHECK(changes([&] { net[0]->as<torch::nn::Linear>()->bias.set_requires_grad(false); }));
  CHECK(changes([&] { outside.set_requires_grad(false); }));
  CHECK(changes([&] { net[1]->eval(); }));

  have_graph();
  auto* const first = entry().graph.get();
  graphs.entry("another", *net, {outside}).graph = graphs.make(&make_fake, c10::kCPU);
  CHECK(static_cast<FakeGraph&>(*graphs.entry("another", *net, {outside}).graph).neighbour == first);
  CHECK(graphs.size() == 2);
  graphs.drop();
  CHECK(FakeGraph::alive == 0);
}

TEST_CASE("graphs go when other parameters are trained, and forms without one are not kept for ever") {
  torch::nn::Linear net(2, 2);
  const at::Tensor one = at::ones({1}).set_requires_grad(true), other = at::ones({1}).set_requires_grad(true);
  MicroBatchGraphs graphs;
  graphs.entry("form", *net, {one}).graph = graphs.make(&make_fake, c10::kCPU);
  const at::Tensor gradient = graphs.gradient_of(one);
  CHECK(graphs.entry("form", *net, {one}).graph != nullptr);
  CHECK(graphs.gradient_of(one).is_same(gradient));
  CHECK(graphs.entry("form", *net, {one, other}).graph == nullptr);
  CHECK_FALSE(graphs.gradient_of(one).is_same(gradient));

  graphs.entry("form", *net, {one, other}).graph = graphs.make(&make_fake, c10::kCPU);
  graphs.entry("seen", *net, {one, other}).seen = 1;
  for (int i = 0; i < 1100; ++i) (void)graphs.entry(std::to_string(i), *net, {one, other});
  CHECK(graphs.entry("seen", *net, {one, other}).seen == 0);
  CHECK(graphs.entry("form", *net, {one, other}).graph != nullptr);
}

TEST_CASE("each type of device has a maker of its own, and most have none") {
  CHECK(device_graph_maker(c10::DeviceType::CPU) == nullptr);
  auto& maker = device_graph_maker(c10::DeviceType::MTIA);
  maker = &make_fake;
  CHECK(device_graph_maker(c10::DeviceType::CPU) == nullptr);
  maker = nullptr;
}

TEST_CASE("a form is refused for the first reason that is found") {
  MicroBatchGraph entry;
  entry.refuse("gradients are sparse");
  entry.refuse("it cannot be captured");
  CHECK(entry.refused == "gradients are sparse");
}
