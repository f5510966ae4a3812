// SPDX-License-Identifier: MIT
// Exchanges among ranks the length of the epoch as a fit begins, the results of an evaluation, and the reason
// for which a fit ends, with one small collective each.
#pragma once

#include <looptorch/base/rank_reduction.hpp>
#include <looptorch/loop/compose/measure.hpp>
#include <looptorch/loop/ranks.hpp>
#include <looptorch/loop/run.hpp>

#include <cstdint>
#include <optional>
#include <string>

namespace looptorch::detail {

/// Returns the largest number of batches in an epoch of any rank; nothing if one rank does not know. Throws
/// RanksDiffer if the ranks' fits are not the same.
template <class Engine>
std::optional<std::int64_t> agreed_batches(Engine& engine, std::optional<std::int64_t> batches,
                                           const std::string& fit) {
  bool unknown = !batches;
  std::int64_t largest = batches.value_or(0);
  RankReduction reduction;
  reduction.any("unknown", unknown);
  reduction.max("batches", largest);
  reduction.require_equal("the length of fit", fit);
  reduction.require_equal("the length of a window", std::to_string(engine.window_length()));
  engine.ranks()->all_reduce(reduction, "the beginning of a fit");
  return unknown ? std::nullopt : std::optional(largest);
}

/// Returns the means over all ranks' batches. For a measure that accumulates, returns its reduced result, or
/// the first rank's if it cannot be reduced.
template <class Engine, class Measure>
Evaluation evaluation_of_ranks(Engine& engine, EvaluationSums& sums, Measure& measure) {
  RankReduction reduction;
  Evaluation of_first;
  sums.all_reduce(reduction);
  if constexpr (all_reduces<Measure>) {
    measure.all_reduce(reduction);
  } else if constexpr (GivesResult<Measure>) {
    take_result(measure, of_first);
    broadcast_result(reduction, of_first);
  }
  engine.ranks()->all_reduce(reduction, message("an evaluation after step ", engine.progress().step));
  sums.take(reduction);
  Evaluation result = sums.read();
  if constexpr (all_reduces<Measure>)
    take_result(measure, result);
  else if constexpr (GivesResult<Measure>)
    result.loss = of_first.loss, result.metrics = of_first.metrics;
  return result;
}

/// Gives all ranks the same reason for the end of a fit, if any has one.
template <class Engine>
void reduce_end(Engine& engine) {
  Run& run = engine.run();
  std::optional<std::string> stop = run.stop_reason(), interruption = run.interruption();
  std::int64_t signal = run.signal();
  RankReduction reduction;
  if (!engine.window().shared.fit_ends) {
    reduction.first_text("stop", stop);
    reduction.first_text("interruption", interruption);
    reduction.max("signal", signal);
  }
  engine.ranks()->all_reduce(reduction, "the end of a fit");
  if (stop) run.stop(*stop);
  if (interruption) run.interrupt(*interruption, static_cast<int>(signal));
  engine.window().shared.fit_ends |= stop || interruption;
}

}  // namespace looptorch::detail
