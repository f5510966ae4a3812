// SPDX-License-Identifier: MIT
// Runs a micro-batch of training as a graph, or eagerly if GraphCandidate has a reason against one. Read this
// header first; `train_on` (loop/step/micro_batch.hpp) calls it. Micro-batches of one form (shapes, types and
// values on the host) share a graph. MicroBatchGraph::State says how the form's next micro-batch runs:
//
//   warming_up  runs eagerly, and shows what a graph needs (micro_batch_warm_up.hpp)
//   ready       is captured, forward and backward (micro_batch_capture.hpp), then replayed
//   captured    is replayed by one launch (micro_batch_replay.hpp)
//   refused     runs eagerly, since warm-up or capture has found a reason (MicroBatchGraph::refuse)
//
// micro_batch_graphs.hpp keeps the graphs by form. It drops all of them when a parameter moves or freezes, or
// when a module changes its mode. After replayed micro-batches, the end of the window runs as a graph of its
// own (graphed_end.hpp). No graph holds the optimizer's kernels, schedules or averages.
#pragma once

#include <looptorch/graph/graph_candidate.hpp>
#include <looptorch/graph/graph_reasons.hpp>
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
    if (const char* const reason = candidate_.reason_against_graph()) return run_eagerly(reason);
    Engine& engine = candidate_.engine;
    MicroBatchGraphs& graphs = candidate_.graphs;
    const auto form = candidate_.form();
    MicroBatchGraph& entry = graphs.entry(form.key, *engine.model(), engine.parameters().trained());
    if (!form.sees_all) entry.refuse(graph_reasons::kOpaqueBatch);
    ++entry.seen;
    entry.is_whole_window = candidate_.is_whole_window();
    // A loaded state brings a new tensor for the loss scale; the graph reads the old one.
    if (!entry.scale.is_same(scale_of(engine))) entry.graph.reset();
    switch (entry.state(graphs.warmup)) {
      case State::warming_up:
        return MicroBatchWarmUp(candidate_, observer_).run(entry);
      case State::ready:
        return capture(entry);
      case State::captured:
        return replay(entry);
      case State::refused:
        return run_eagerly(entry.refused);
    }
  }

 private:
  using State = MicroBatchGraph::State;

  void capture(MicroBatchGraph& entry) {
    if (candidate_.graphs.size() >= candidate_.graphs.max_graphs)
      return run_eagerly(graph_reasons::kMaxGraphs);
    MicroBatchCapture(candidate_).run(entry);
    entry.graph ? replay(entry) : run_eagerly(entry.refused);
  }

  void replay(MicroBatchGraph& entry) {
    if (!entry.loss.weight.is_known() && !candidate_.is_whole_window())
      return run_eagerly(graph_reasons::kWeightsOnDevice);
    if (!MicroBatchReplay(candidate_, observer_).run(entry)) run_eagerly(graph_reasons::kNoWeight);
  }

  void run_eagerly(const std::string& reason) {
    ++candidate_.graphs.counts.eager;
    ++candidate_.graphs.counts.reasons[reason];
    run_micro_batch<I>(candidate_.engine, candidate_.batch, observer_);
  }

  GraphCandidate<I, Engine, Batch> candidate_;
  Observer& observer_;
};

}  // namespace looptorch::detail
