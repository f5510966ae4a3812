// SPDX-License-Identifier: MIT
// Runs an evaluation: without gradients, in eval mode, inside the policies' evaluation and forward scopes.
#pragma once

#include <looptorch/loop/batch_range.hpp>
#include <looptorch/loop/compose/hooks.hpp>
#include <looptorch/loop/compose/measure.hpp>
#include <looptorch/loop/evaluation.hpp>
#include <looptorch/loop/loss.hpp>
#include <looptorch/loop/ranks.hpp>
#include <looptorch/loop/run_phase.hpp>
#include <looptorch/loop/step/retry.hpp>

#include <ATen/core/grad_mode.h>

#include <type_traits>

namespace looptorch::detail {

/// Calls `body` while the model has the weights that evaluations use.
template <class Engine, class Body>
void in_evaluation_scopes(Engine& engine, Body&& body) {
  engine.refresh_model();
  engine.stack().template in_scopes<evaluation_scope_hook>(EvaluationContext{engine.run()}, [&] { body(); });
}

/// Adds one batch to the sums, or to a measure that accumulates.
template <class Engine, class Measure, class Batch>
void measure_batch(Engine& engine, Measure& measure, const Batch& batch, EvaluationSums& sums) {
  using Model = std::remove_reference_t<decltype(engine.model())>;
  if constexpr (Accumulates<Measure, Model, Batch>) {
    const auto add = [&](Model& model, const Batch& of) { return measure.add(model, of), 0; };
    engine.forward(add, batch, /*training=*/false);
    sums.add();
  } else if constexpr (Engine::kRetries && SliceableBatch<Batch> &&
                       std::is_same_v<std::invoke_result_t<Measure&, Model&, const Batch&>, Loss>) {
    measure_with_retries(engine, measure, batch, sums);
  } else {
    sums.add(as_measure(engine.forward(measure, batch, /*training=*/false)));
  }
}

/// Returns the means over the batches of all ranks. Of a measure that accumulates, returns the result that
/// all ranks make together if it can agree, and otherwise that of the first rank.
template <class Engine, class Measure>
Evaluation evaluation_of_ranks(Engine& engine, EvaluationSums& sums, Measure& measure) {
  Ballot ballot;
  Evaluation of_first;
  sums.agree(ballot);
  if constexpr (agrees<Measure>) {
    measure.agree(ballot);
  } else if constexpr (GivesResult<Measure>) {
    take_result(measure, of_first);
    lead_result(ballot, of_first);
  }
  engine.ranks()->agree(ballot, message("an evaluation after step ", engine.progress().step));
  sums.take(ballot);
  Evaluation result = sums.read();
  if constexpr (agrees<Measure>)
    take_result(measure, result);
  else if constexpr (GivesResult<Measure>)
    result.loss = of_first.loss, result.metrics = of_first.metrics;
  return result;
}

/// Returns the means of `measure`, or its result, over all batches.
template <class Engine, class Batches, class Measure>
Evaluation evaluate_range(Engine& engine, Batches& batches, Measure& measure) {
  return engine.in_phase(RunPhase::evaluation, "evaluation", [&]() -> Evaluation {
    at::NoGradGuard no_gradients;
    EvalScope eval(*engine.model());
    EvaluationSums sums;
    in_evaluation_scopes(engine, [&] {
      for (auto&& batch : batches)
        with_batch_on(engine.run().device(), kPinnedSource<Batches>, batch,
                      [&](const auto& there) { measure_batch(engine, measure, there, sums); });
    });
    if constexpr (Engine::kHasRanks)
      if (engine.ranks()) return evaluation_of_ranks(engine, sums, measure);
    Evaluation result = sums.read();
    if constexpr (GivesResult<Measure>) take_result(measure, result);
    return result;
  });
}

}  // namespace looptorch::detail
