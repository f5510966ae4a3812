// SPDX-License-Identifier: MIT
// Captures one form of micro-batch (graphed_micro_batch.hpp) as a graph. Records forward and backward on
// copies of the batch's tensors, which each replay fills anew; a capture itself computes nothing. If the
// capture fails, marks the form as refused, and restores the gradients and the random generator.
#pragma once

#include <looptorch/base/device/device_graph.hpp>
#include <looptorch/base/device/saved_generator.hpp>
#include <looptorch/base/error.hpp>
#include <looptorch/base/what_of.hpp>
#include <looptorch/data/batch/batch.hpp>
#include <looptorch/flops/flop_counter.hpp>
#include <looptorch/graph/capture_graph.hpp>
#include <looptorch/graph/gradient_versions.hpp>
#include <looptorch/graph/graph_candidate.hpp>
#include <looptorch/graph/graph_generator.hpp>
#include <looptorch/graph/graph_reasons.hpp>
#include <looptorch/graph/micro_batch_graphs.hpp>
#include <looptorch/loop/step/micro_batch.hpp>
#include <looptorch/objective/loss.hpp>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_zero.h>
#include <ATen/ops/full_like.h>

#include <cstddef>
#include <exception>
#include <utility>
#include <vector>

namespace looptorch::detail {

/// Observes a capture: leaves the loss as it is, and gives its weight and scale to backward as the gradient.
/// If a hook on the loss changes this gradient, it changes a copy, which each replay makes anew.
template <class Engine>
struct CaptureObserver : MicroBatchObserver {
  CaptureObserver(Engine& engine_in, MicroBatchGraph& captured) : engine(engine_in), entry(captured) {}
  Engine& engine;
  MicroBatchGraph& entry;
  at::Tensor copied;

  at::Tensor weigh(Engine&, UpdateWork&, Loss& given) { return loss_tensor(entry.loss = given); }
  bool accept(const Loss&) { return true; }
  at::Tensor scale(const at::Tensor& loss) { return loss; }
  const at::Tensor& root(UpdateWork&, const at::Tensor& loss) {
    const at::NoGradGuard no_gradients;
    const at::Tensor& kept = entry.root.tensor;
    copied = engine.watches_losses() ? kept.clone() : engine.scaled(kept).to(loss.scalar_type());
    return copied;
  }
};

/// Makes the graph of a form that is warmed up.
template <std::size_t I, class Engine, class Batch>
class MicroBatchCapture {
 public:
  explicit MicroBatchCapture(GraphCandidate<I, Engine, Batch>& candidate) : candidate_(candidate) {}

  void run(MicroBatchGraph& entry) {
    const GradientHandles gradients(candidate_.view().parameters);
    const SavedGenerator random(at::detail::getDefaultCPUGenerator());
    auto graph = candidate_.graphs.make(candidate_.maker(), candidate_.device());
    entry.slots.clear();
    entry.generator = GraphGenerator(candidate_.device(), *graph);
    try {
      prepare(entry);
      const GradientVersions before(candidate_.view().parameters);
      const FlopCounter counter(/*alone=*/true);
      record(entry, *graph);
      entry.flops = counter.count();
      if (!reached_targets(before, entry)) entry.refuse(graph_reasons::kOtherParameters);
    } catch (const std::exception& error) {
      entry.refuse(message(graph_reasons::kFailedCapture, first_line(error.what())));
    } catch (...) {
      entry.refuse(message(graph_reasons::kFailedCapture, "an unknown exception"));
    }
    if (!random.same(SavedGenerator(at::detail::getDefaultCPUGenerator())))
      entry.refuse(graph_reasons::kHostRandom);
    if (!entry.refused.empty()) {  // a capture never runs, so no gradient has changed
      entry.generator.give_up();
      gradients.restore();
      entry.loss = {};
      entry.slots.clear();
      entry.targets.clear();
      candidate_.graphs.free_unused_gradients();
      return;
    }
    entry.graph = std::move(graph);
    ++candidate_.graphs.counts.graphs;
  }

 private:
  /// Makes the memory that the graph reads and writes, outside of its pool.
  void prepare(MicroBatchGraph& entry) {
    at::NoGradGuard no_gradients;
    for (auto& [parameter, gradient] : entry.targets) gradient = candidate_.graphs.gradient_of(parameter);
    MicroBatchGraphs::attach(entry.targets, entry.is_whole_window);
    entry.root = {1, at::full_like(entry.loss_like, 1)};
    entry.scale = scale_of(candidate_.engine);
    (void)candidate_.loss_buffers();
  }

  void record(MicroBatchGraph& entry, DeviceGraph& graph) {
    Batch slots = candidate_.batch;
    for_each_tensor(slots, [&](at::Tensor& tensor) {
      if (tensor.defined()) entry.slots.emplace_back(tensor = tensor.detach().clone());
    });
    capture_graph(graph, candidate_.device(), [&] {
      if (entry.is_whole_window) set_to_zero(entry);
      CaptureObserver<Engine> observer(candidate_.engine, entry);
      run_micro_batch<I>(candidate_.engine, std::as_const(slots), observer);
      detach(entry.loss);
      if (entry.is_whole_window && entry.loss.weight.is_known())
        candidate_.loss_buffers().set_sum(entry.loss);
    });
  }

  static void set_to_zero(const MicroBatchGraph& entry) {
    at::NoGradGuard no_gradients;
    std::vector<at::Tensor> gradients;
    for (const auto& [parameter, gradient] : entry.targets) gradients.push_back(gradient);
    at::_foreach_zero_(gradients);
  }

  static void detach(Loss& loss) {
    if (loss.value.defined()) loss.value = loss.value.detach();
    if (loss.sum.defined()) loss.sum = loss.sum.detach();
  }

  /// True if the captured backward adds to the targets' gradients, and to no others.
  [[nodiscard]] bool reached_targets(const GradientVersions& before, const MicroBatchGraph& entry) const {
    const std::vector<at::Tensor> reached = before.reached();
    if (reached.size() != entry.targets.size()) return false;
    for (std::size_t i = 0; i < reached.size(); ++i)
      if (!reached[i].is_same(entry.targets[i].parameter) ||
          !reached[i].grad().is_same(entry.targets[i].gradient))
        return false;
    return true;
  }

  GraphCandidate<I, Engine, Batch>& candidate_;
};

}  // namespace looptorch::detail
