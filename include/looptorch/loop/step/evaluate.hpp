// SPDX-License-Identifier: MIT
// Evaluates a model over a range of batches: runs forward passes in eval mode, without gradients. Calls the
// hooks `evaluation_scope`, with which AverageWeights puts its averages in place of the weights, and
// `forward_scope`, with which Autocast switches autocast on. `Trainer::evaluate` and `Run::evaluate` call it.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/out_of_memory.hpp>
#include <looptorch/data/loader/batch_range.hpp>
#include <looptorch/loop/compose/hooks.hpp>
#include <looptorch/loop/compose/measure.hpp>
#include <looptorch/loop/evaluation.hpp>
#include <looptorch/loop/run_phase.hpp>
#include <looptorch/loop/step/window.hpp>
#include <looptorch/objective/loss.hpp>

#include <ATen/core/grad_mode.h>

#include <cstdint>
#include <type_traits>

namespace looptorch::detail {

/// Calls `body` with the weights that evaluations use.
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
  } else {
    window_kind_t<Engine>::measure(engine, measure, batch, sums);
  }
}

/// Returns the result of an evaluation on this process alone.
template <class Measure>
[[nodiscard]] Evaluation own_evaluation(const EvaluationSums& sums, Measure& measure) {
  Evaluation result = sums.read();
  if constexpr (GivesResult<Measure>) take_result(measure, result);
  return result;
}

/// Returns `measure`'s means or result over all batches, or up to the run's batch limit. A loader yields its
/// epoch 0, so that each evaluation has the same batches, and then continues from its former position.
template <class Engine, class Batches, class Measure>
Evaluation evaluate_range(Engine& engine, Batches& batches, Measure& measure) {
  return engine.in_phase(RunPhase::evaluation, "evaluation", [&]() -> Evaluation {
    at::NoGradGuard no_gradients;
    EvalScope eval(*engine.model());
    EvaluationSums sums;
    std::int64_t number = 0;
    const FirstEpochScope<Batches> first(batches);
    in_evaluation_scopes(engine, [&] {
      for (auto&& batch : batches) {
        with_context(
            [&] {
              with_batch_on(engine.run().device(), kPinnedSource<Batches>, batch,
                            [&](const auto& there) { measure_batch(engine, measure, there, sums); });
            },
            [&] { return message("in batch ", number, " of an evaluation"); });
        if (++number == engine.run().batch_limit()) break;
      }
    });
    return engine.ranks().evaluation(engine, sums, measure);
  });
}

}  // namespace looptorch::detail
