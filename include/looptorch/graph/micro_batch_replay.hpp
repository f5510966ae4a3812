// SPDX-License-Identifier: MIT
// Replays the graph of a micro-batch's form (graphed_micro_batch.hpp). Copies the batch and its loss's weight
// into the graph's memory, and runs the graph by one launch. The weight acts as the gradient with which
// backward begins.
#pragma once

#include <looptorch/data/batch/batch.hpp>
#include <looptorch/flops/flop_counter.hpp>
#include <looptorch/graph/graph_candidate.hpp>
#include <looptorch/graph/micro_batch_graphs.hpp>
#include <looptorch/loop/run_phase.hpp>
#include <looptorch/loop/step/micro_batch.hpp>
#include <looptorch/objective/loss.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include <cstddef>
#include <utility>

namespace looptorch::detail {

/// Runs a micro-batch by the graph of its form.
template <std::size_t I, class Engine, class Batch, class Observer>
class MicroBatchReplay {
 public:
  MicroBatchReplay(GraphCandidate<I, Engine, Batch>& candidate, Observer& observer)
      : candidate_(candidate), observer_(observer) {}

  /// Returns false, and does nothing, if the batch weighs nothing.
  [[nodiscard]] bool run(MicroBatchGraph& entry) {
    Loss loss = entry.loss;
    if constexpr (GraphCandidate<I, Engine, Batch>::kHasHostWeight)
      if (loss.weight.is_known()) loss.weight = candidate_.host_weight();
    loss = as_loss(std::move(loss));
    const double slope = slope_of(loss);
    if (slope == 0) return false;
    candidate_.engine.in_phase(
        RunPhase::backward, "graph",
        [&] {
          rescale_gradients(candidate_.view(), candidate_.work(), candidate_.work().weight.take_correction());
          MicroBatchGraphs::attach(entry.targets, entry.is_whole_window);
          fill(entry);
          set_numbers(entry, slope, loss.weight);
          entry.generator.before_replay();
          entry.graph->replay();
          FlopCounter::add(entry.flops);
          entry.generator.after_replay();
        },
        I);
    if (!loss.weight.is_known()) (void)candidate_.work().weight.weigh_alone(loss);
    if (entry.is_whole_window && loss.weight.is_known())
      candidate_.work().losses.expect_sum(candidate_.loss_buffers().sum);
    if (observer_.accept(loss)) observer_.after_backward(loss);
    ++candidate_.graphs.counts.replayed;
    return true;
  }

 private:
  /// Counts the micro-batch, and returns the factor of its loss; 0 if it contributes no gradient.
  [[nodiscard]] double slope_of(const Loss& loss) {
    if (!loss.weight.is_known()) return 1;
    return candidate_.is_whole_window() ? candidate_.work().weight.slope_alone(loss)
                                        : candidate_.work().weight.slope(loss);
  }

  /// Sets the gradient of the loss, which the graph multiplies by the loss scale, and the loss's weight.
  void set_numbers(MicroBatchGraph& entry, double slope, const Quantity& weight) {
    at::NoGradGuard no_gradients;
    entry.root.set(slope);
    if (entry.is_whole_window && weight.is_known()) candidate_.loss_buffers().weight.set(weight.number());
  }

  void fill(MicroBatchGraph& entry) {
    at::NoGradGuard no_gradients;
    std::size_t slot = 0;
    for_each_tensor(candidate_.batch, [&](const at::Tensor& tensor) {
      if (tensor.defined()) entry.slots[slot++].copy_(tensor, /*non_blocking=*/true);
    });
  }

  GraphCandidate<I, Engine, Batch>& candidate_;
  Observer& observer_;
};

}  // namespace looptorch::detail
