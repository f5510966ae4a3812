// SPDX-License-Identifier: MIT
// Runs the first micro-batches of a form (graphed_micro_batch.hpp) eagerly, and notes what their graph needs:
// which parameters backward reaches, and the loss's shape and type. Refuses the form if a micro-batch does
// what a graph cannot repeat.
#pragma once

#include <looptorch/base/device/accelerator.hpp>
#include <looptorch/base/device/saved_generator.hpp>
#include <looptorch/graph/gradient_versions.hpp>
#include <looptorch/graph/graph_candidate.hpp>
#include <looptorch/graph/graph_reasons.hpp>
#include <looptorch/graph/micro_batch_graphs.hpp>
#include <looptorch/loop/step/micro_batch.hpp>
#include <looptorch/objective/loss.hpp>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Tensor.h>

#include <cstddef>

namespace looptorch::detail {

/// The observer of a warm-up: forwards to the observer of training, and notes the loss.
template <class Observer>
struct WarmUpObserver : MicroBatchObserver {
  WarmUpObserver(Observer& of_training, Loss& noted) : observer(of_training), loss(noted) {}
  Observer& observer;
  Loss& loss;

  bool accept(const Loss& given) { return observer.accept(loss = given); }
  at::Tensor scale(const at::Tensor& weighed) { return observer.scale(weighed); }
  void before_backward(const at::Tensor& weighed, double correction) {
    observer.before_backward(weighed, correction);
  }
  void after_backward(const Loss& given) { observer.after_backward(given); }
};

/// Runs a micro-batch of a form that is not captured yet.
template <std::size_t I, class Engine, class Batch, class Observer>
class MicroBatchWarmUp {
 public:
  MicroBatchWarmUp(GraphCandidate<I, Engine, Batch>& candidate, Observer& observer)
      : candidate_(candidate), observer_(observer) {}

  void run(MicroBatchGraph& entry) {
    ++candidate_.graphs.counts.eager;
    const GradientVersions before(candidate_.view().parameters);
    const SavedGenerator random(at::detail::getDefaultCPUGenerator());
    Loss loss;
    WarmUpObserver<Observer> warm_up(observer_, loss);
    run_micro_batch<I>(candidate_.engine, candidate_.batch, warm_up);
    if (!random.same(SavedGenerator(at::detail::getDefaultCPUGenerator())))
      entry.refuse(graph_reasons::kHostRandom);
    if (!loss.weight.is_known() && (!candidate_.is_whole_window() || loss.sum.defined()))
      entry.refuse(graph_reasons::kWeightsOnDevice);
    if (!loss_tensor(loss).defined() || candidate_.work().fault.micro_batch)
      return void(--entry.seen);  // it shows no gradients
    if (!candidate_.graphs.lies_on(with_index(candidate_.device())))
      entry.refuse(graph_reasons::kSeveralDevices);
    if (!tells_weight_of(loss)) entry.refuse(graph_reasons::kOtherWeight);
    entry.loss_like = loss_tensor(loss).detach();
    entry.targets.clear();
    for (const at::Tensor& parameter : before.reached()) {
      if (parameter.grad().layout() != at::kStrided) entry.refuse(graph_reasons::kSparseGradients);
      entry.targets.push_back({parameter, {}});
    }
  }

 private:
  [[nodiscard]] bool tells_weight_of(const Loss& loss) {
    if constexpr (GraphCandidate<I, Engine, Batch>::kHasHostWeight)
      return !loss.weight.is_known() || loss.weight.number() == candidate_.host_weight();
    return true;
  }

  GraphCandidate<I, Engine, Batch>& candidate_;
  Observer& observer_;
};

}  // namespace looptorch::detail
