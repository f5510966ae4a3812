// SPDX-License-Identifier: MIT
// If memory runs out, retries the window with its micro-batches split in half, again and again down to single
// samples. Results equal those of a run with enough memory up to the order of summation, unless layers mix
// samples, as BatchNorm does, or draw random numbers; if memory never runs out they are equal bit for bit.
// Keeps a window's batches until it ends: on the device on which they arrived, or on the model's if there are
// several updates. Once a window, copies the model's buffers and the states of random generators.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/process/terminal.hpp>
#include <looptorch/base/rank_reduction.hpp>
#include <looptorch/base/state_dict.hpp>
#include <looptorch/loop/context.hpp>
#include <looptorch/loop/resume_rule.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <iostream>
#include <optional>
#include <string>
#include <utility>

namespace looptorch {

namespace detail {

/// RetryOnOom's counters, and the pieces that it keeps for a while.
struct RetryOnOomState {
  std::int64_t pieces = 1;               ///< Current pieces of each micro-batch.
  std::int64_t calm = 0;                 ///< Windows since memory last ran out, or the pieces last grew.
  std::int64_t retries = 0;              ///< Attempts after the first.
  std::int64_t windows = 0;              ///< Windows in which memory ran out.
  std::int64_t most_pieces = 1;          ///< The most that a micro-batch was split into.
  std::int64_t last_step = -1;           ///< Step in which memory last ran out; not saved.
  std::optional<std::string> said = {};  ///< Error of the current window, on any rank; not saved.
  bool is_own = false;                   ///< `said` is an error of this rank; not saved.

  void count(const OutOfMemoryContext& context, std::int64_t next_pieces) {
    ++retries;
    if (!context.training) return;
    const std::int64_t step = context.run.progress().step;
    windows += std::exchange(last_step, step) != step;
    pieces = std::max(pieces, next_pieces);
    most_pieces = std::max(most_pieces, next_pieces);
    calm = 0;
  }
};

}  // namespace detail

/// Retries windows that run out of memory. Batches must be a `SliceableBatch`, and the objective must return
/// a Loss, whose weights make the pieces add up to the micro-batch; under When, others are retried whole,
/// with an empty cache. Drops graphs of CaptureGraphs first, since they hold memory. Layers that mix samples,
/// such as BatchNorm, see one piece at a time, and random numbers are drawn anew from the window's beginning.
///
/// Recovers if memory runs out in forward, in backward, or in the update before a parameter has changed.
/// With LibTorch's own optimizers, which change parameters as they allocate, recovers only before their step,
/// and with CaptureGraphs only before the graph of a window's end runs.
/// Evaluations of the objective are split in the same way.
struct RetryOnOom {
  using State = detail::RetryOnOomState;
  static constexpr ResumeRule resume_rule = ResumeRule::always;

  std::int64_t relax_after = 16;  ///< Windows without a retry until the size of pieces doubles; 0: never.
  std::function<void(const std::string&)> report = {};  ///< Takes a sentence an attempt; empty: stderr.

  /// Throws UsageError for a negative `relax_after`.
  void on_fit_begin(FitContext&, State&) const {
    if (relax_after < 0)
      throw UsageError(
          message("RetryOnOom's relax_after must be a number of windows or 0 for never, got ", relax_after));
  }

  [[nodiscard]] std::int64_t pieces(State& state) const { return state.pieces; }

  void on_out_of_memory(OutOfMemoryContext& context, State& state) const {
    const bool single = !context.can_split || context.pieces_before >= context.samples;
    const std::string where = message(context.training ? "in step " : "in the evaluation before step ",
                                      context.run.progress().step);
    if (single && context.attempts > 1)
      return void(context.error = message(
                      "memory ran out ", where,
                      context.can_split ? " with single samples" : " with batches that cannot be split",
                      ", also once the cache was emptied; use ",
                      context.can_split ? "shorter samples" : "smaller batches",
                      ", Checkpointed, or a smaller model: ", context.error));
    const std::int64_t pieces =
        single ? context.pieces_before : std::min(2 * context.pieces_before, context.samples);
    state.count(context, pieces);
    const std::string how = single ? "with an empty cache"
                                   : message("in pieces of ", (context.samples + pieces - 1) / pieces, " of ",
                                             context.samples, " samples");
    const std::string sentence = message("memory ran out ", where, "; retrying ", how);
    tell(sentence);
    if (context.training) {
      state.said = sentence;
      state.is_own = true;
    }
    context.retry(pieces);
  }

  /// Tells all ranks which of them retried a window, while the others waited.
  void all_reduce(RankReduction& reduction, State& state) const {
    reduction.first_text("RetryOnOom", state.said);
  }

  void on_window_end(WindowContext& window, State& state) const {
    if (const auto said = std::exchange(state.said, std::nullopt);
        said && !std::exchange(state.is_own, false))
      tell(*said);
    const bool ran_out = state.last_step + 1 == window.run.progress().step;
    if (state.pieces == 1 || relax_after == 0 || ran_out || ++state.calm < relax_after) return;
    state.pieces = std::max<std::int64_t>(1, state.pieces / 2);
    state.calm = 0;
  }

  void state_dict(StateDict& out, State& state) const {
    out.set("pieces", state.pieces);
    out.set("calm", state.calm);
    out.set("retries", state.retries);
    out.set("windows", state.windows);
    out.set("most_pieces", state.most_pieces);
  }
  void load_state_dict(const StateDict& in, State& state) const {
    state.pieces = in.get<std::int64_t>("pieces");
    state.calm = in.get<std::int64_t>("calm");
    state.retries = in.get<std::int64_t>("retries");
    state.windows = in.get<std::int64_t>("windows");
    state.most_pieces = in.get<std::int64_t>("most_pieces");
  }

 private:
  void tell(const std::string& sentence) const {
    report ? report(sentence) : void(std::cerr << detail::own_line(stderr, sentence));
  }
};

}  // namespace looptorch
