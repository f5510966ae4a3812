// SPDX-License-Identifier: MIT
// Runs forward and backward of micro-batches as CUDA graphs: one launch instead of thousands. Use it if the
// host issues kernels more slowly than the GPU computes them. Results are those of the eager run, bit for
// bit, except for kernels that add in no fixed order. Each form of batch (shapes, types, values on the host)
// has a graph, whose activations take memory until the fit ends.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/process/terminal.hpp>
#include <looptorch/graph/graphed_end.hpp>
#include <looptorch/graph/graphed_micro_batch.hpp>
#include <looptorch/graph/micro_batch_graphs.hpp>
#include <looptorch/loop/context.hpp>
#include <looptorch/loop/resume_rule.hpp>

#include <cstdint>
#include <cstdio>
#include <functional>
#include <iostream>
#include <string>

namespace looptorch {

/// Captures a graph for each form of micro-batch: shapes, types, and host-only values, such as numbers and
/// strings in the batch. An objective may have `double weight(const Batch&) const`, which returns its loss's
/// weight, if it computes nothing else from host-only values. Forms are then told apart by shapes and types
/// alone.
///
/// Once its graph exists, the objective no longer runs on the host. It must not depend on anything on the
/// host that changes: a counter, a random number, a rate. Runs eagerly (a) on a CPU, (b) on several ranks,
/// (c) for an objective with an operation that a graph cannot record, such as a draw from the CPU's
/// generator, a wait for the device or a read of a tensor's value. `report` then gets the reasons as the fit
/// ends.
///
/// Gradients stay allocated between windows, and a graph keeps its activations' memory until the fit ends.
struct CaptureGraphs {
  using State = detail::MicroBatchGraphs;
  static constexpr ResumeRule resume_rule = ResumeRule::always;

  std::int64_t warmup = 2;  ///< Micro-batches of a form that run eagerly before one is captured; at least 1.
  std::int64_t max_graphs = 16;                         ///< Forms beyond that run eagerly.
  std::function<void(const std::string&)> report = {};  ///< Takes one sentence as a fit ends; empty: stderr.

  /// Throws UsageError for options below 1.
  void on_fit_begin(FitContext&, State& state) const {
    if (warmup < 1 || max_graphs < 1)
      throw UsageError(message("CaptureGraphs's warmup and max_graphs must be at least 1, got ", warmup,
                               " and ", max_graphs));
    state.drop();
    state.warmup = warmup, state.max_graphs = max_graphs, state.counts = {};
  }

  [[nodiscard]] detail::MicroBatchGraphs* graphs(const Run&, State& state) const { return &state; }

  void on_fit_end(FitContext&, State& state) const {
    state.drop();
    const std::string text = text_of(state.counts);
    if (text.empty()) return;
    report ? report(text) : void(std::cerr << detail::own_line(stderr, text));
  }

 private:
  /// "960 of 1000 micro-batches ran as graphs, of which there are 4; 32 ran eagerly: why; ...".
  static std::string text_of(const detail::GraphCounts& counts) {
    const std::int64_t all = counts.replayed + counts.eager;
    if (all == 0) return {};
    std::string text = message(counts.replayed, " of ", all,
                               " micro-batches ran as graphs, of which there are ", counts.graphs);
    std::int64_t explained = 0;
    for (const auto& [reason, micro_batches] : counts.reasons) {
      text += message("; ", micro_batches, " ran eagerly: ", reason);
      explained += micro_batches;
    }
    if (counts.eager > explained) text += message("; ", counts.eager - explained, " came before their graph");
    if (counts.ends > 0) text += message("; the ends of ", counts.ends, " windows ran as graphs, too");
    for (const auto& [reason, windows] : counts.eager_ends)
      text += message("; the ends of ", windows, " windows ran eagerly: ", reason);
    return text;
  }
};

}  // namespace looptorch
