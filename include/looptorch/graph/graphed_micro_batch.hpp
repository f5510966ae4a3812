// SPDX-License-Identifier: MIT
// The entry to this room: runs a micro-batch of training as a graph, if possible. `train_on`
// (loop/step/micro_batch.hpp) calls it. Micro-batches of one form (shapes, types and values on the host)
// share a graph, and go through these states:
//
//   eager      all of them, if the fit or its window can have no graph: GraphCandidate (graph_candidate.hpp)
//   warming up the first ones run eagerly, and show what a graph needs (micro_batch_warm_up.hpp)
//   captured   the next one is recorded: forward and backward (micro_batch_capture.hpp)
//   replayed   that one and all later ones are one launch each (micro_batch_replay.hpp)
//   refused    eager from then on, if warm-up or capture found a reason (MicroBatchGraph::refuse)
//
// micro_batch_graphs.hpp keeps the graphs by form, and drops all of them when a parameter moves, freezes or a
// module changes its mode. After replayed micro-batches the end of the window is a graph of its own
// (graphed_end.hpp). No graph holds the optimizer's kernels, schedules and averages.
#pragma once

#include <looptorch/graph/graph_candidate.hpp>
#include <looptorch/graph/micro_batch_capture.hpp>
#include <looptorch/graph/micro_batch_graphs.hpp>
#include <looptorch/graph/micro_batch_replay.hpp>
#include <looptorch/graph/micro_batch_warm_up.hpp>
#include <looptorch/loop/step/micro_batch.hpp>

#include <cstddef>
#include <string>

namespace looptorch::detail {

/// Runs one micro-batch of update I, by the state of its form.
template <std::size_t I, class Engine, class Batch, class Observer>
class GraphedMicroBatch {
 public:
  GraphedMicroBatch(Engine& engine, MicroBatchGraphs& graphs, const Batch& batch, Observer& observer)
      : candidate_{engine, graphs, batch}, observer_(observer) {}

  void run() {
    if (const char* const reason = candidate_.reason_against_all()) return run_eagerly(reason);
    Engine& engine = candidate_.engine;
    MicroBatchGraphs& graphs = candidate_.graphs;
    MicroBatchGraph& entry = graphs.entry(candidate_.form(), *engine.model(), engine.parameters().trained());
    ++entry.seen;
    entry.is_whole_window = candidate_.is_whole_window();
    if (!entry.scale.is_same(scale_of(engine))) entry.graph.reset();  // a policy's state was loaded
    if (!entry.graph && entry.refused.empty()) {
      if (entry.seen <= graphs.warmup) return MicroBatchWarmUp(candidate_, observer_).run(entry);
      if (graphs.size() >= graphs.max_graphs)
        return run_eagerly("there are as many graphs as max_graphs allows");
      MicroBatchCapture(candidate_).run(entry);
    }
    if (!entry.graph) return run_eagerly(entry.refused);
    if (!entry.loss.weight.is_known() && !candidate_.is_whole_window())
      return run_eagerly("the losses' weights lie on the device");
    if (!MicroBatchReplay(candidate_, observer_).run(entry)) run_eagerly("the batch weighs nothing");
  }

 private:
  void run_eagerly(const std::string& reason) {
    ++candidate_.graphs.counts.eager;
    ++candidate_.graphs.counts.reasons[reason];
    run_micro_batch<I>(candidate_.engine, candidate_.batch, observer_);
  }

  GraphCandidate<I, Engine, Batch> candidate_;
  Observer& observer_;
};

}  // namespace looptorch::detail
