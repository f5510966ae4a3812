// SPDX-License-Identifier: MIT
// Retries after memory ran out: in training (`with_retries`), in the optimizer's step
// (`finish_update_with_retries`) and in evaluations (`measure_with_retries`). Frees memory, and asks policies
// such as RetryOnOom into how many pieces to split each batch. In training and in the optimizer's step, rolls
// back the window and runs it again with its batches in pieces, weighted so that the gradients are the same.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/out_of_memory.hpp>
#include <looptorch/data/batch/batch.hpp>
#include <looptorch/loop/compose/measure.hpp>
#include <looptorch/loop/context.hpp>
#include <looptorch/loop/step/redo_state.hpp>
#include <looptorch/loop/step/update_step.hpp>
#include <looptorch/memory/empty_cache.hpp>
#include <looptorch/redo/batch_watch.hpp>
#include <looptorch/redo/judge_window.hpp>
#include <looptorch/redo/train_rerunnable.hpp>

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace looptorch::detail {

/// Returns the number of pieces that policies split micro-batches into.
template <class Engine>
[[nodiscard]] std::int64_t pieces_of(Engine& engine) {
  std::int64_t pieces = 1;
  if (engine.window().may_redo)
    engine.stack().template each_with<pieces_hook>(
        [&](auto& slot) { pieces = std::max(pieces, pieces_hook::call(slot.policy, slot.state)); });
  return pieces;
}

/// Frees memory, then asks policies for a retry. Returns the number of pieces of the next attempt. Throws
/// c10::OutOfMemoryError if no policy wants one.
template <class Engine>
[[nodiscard]] std::int64_t free_and_ask_for_retry(Engine& engine, OutOfMemoryContext context) {
  if constexpr (Engine::PolicyStack::template has<graphs_hook>())
    if (auto* const graphs = engine.graphs()) graphs->drop();
  engine.window().derived.drop();
  empty_cache(engine.run().device());
  if (engine.window().may_redo) engine.stack().template run<on_out_of_memory_hook>(context);
  TORCH_CHECK_WITH(OutOfMemoryError, context.pieces() > 0, context.error);
  return context.pieces();
}

/// Retries update I's window until memory suffices, or no policy wants another attempt.
template <std::size_t I, class Engine, class Batch>
void retry_window(Engine& engine, std::vector<Batch>& kept, std::string error) {
  const UpdateView& view = engine.run().updates()[I];
  UpdateWork& work = engine.works()[I];
  std::int64_t samples = 0;
  for (const Batch& batch : kept) samples = std::max(samples, batch_size(batch));
  constexpr bool can_split = kCanSplit<Engine, Batch>;
  while (true) {
    if (engine.redo().batch_was_written)
      throw UsageError(
          message(kWritesToBatch, " The window would be retried, since memory ran out: ", error));
    engine.redo().window_start.rewind(view, work);
    const std::int64_t pieces = free_and_ask_for_retry(
        engine,
        {engine.run(), /*training=*/true, samples, work.pieces, work.attempts, std::move(error), can_split});
    work.attempts = pieces == work.pieces ? work.attempts + 1 : 1;
    work.pieces = pieces;
    try {
      return train_kept_window<I>(engine, kept);
    } catch (...) {
      error = out_of_memory_text_or_rethrow();
    }
  }
}

/// Calls `learn()`, which learns from some of the kept batches for update I. If memory runs out and a policy
/// agrees, retries with all of the kept batches.
template <std::size_t I, class Engine, class Batch, class Learn>
void with_retries(Engine& engine, [[maybe_unused]] std::vector<Batch>& kept, Learn&& learn) {
  if constexpr (!RedoReasons<Engine>::kSplits || Engine::template kByClosure<I>) {
    learn();
  } else {
    if (!may_split(engine)) return learn();
    std::string error;
    try {
      return learn();
    } catch (...) {
      error = out_of_memory_text_or_rethrow();
    }
    retry_window<I>(engine, kept, std::move(error));
  }
}

/// True for an optimizer that allocates the memory of a parameter group before it changes the group.
template <class Optimizer>
inline constexpr bool allocates_first = FoldingOptimizer<Optimizer>;

/// Makes update I. If memory runs out before any parameter has changed, retries its window and the update for
/// as long as policies split further; not on several ranks, whose sums exist only once.
template <std::size_t I, class Engine, class Batch>
void finish_update_with_retries(Engine& engine, std::vector<Batch>& kept) {
  while (true) {
    const ParameterVersions parameters(engine.run().updates()[I]);
    bool began = false;
    std::string error;
    try {
      return finish_update<I>(
          engine,
          [&](auto& optimizer, UpdateContext& context, const GradientScale&) {
            began = !allocates_first<std::remove_reference_t<decltype(optimizer)>>;
            return step_optimizer(optimizer, context);
          },
          WindowJudge<I, Engine>(engine));
    } catch (...) {
      if (began || engine.works()[I].graph_ended || engine.ranks() || !parameters.are_as_before()) throw;
      error = out_of_memory_text_or_rethrow();
    }
    retry_window<I>(engine, kept, std::move(error));
  }
}

/// Adds one batch of an evaluation to its sums, in pieces if memory runs out. Throws UsageError rather than
/// measure again what the objective has written to.
template <class Engine, class Objective, class Batch>
void measure_with_retries(Engine& engine, Objective& objective, const Batch& batch, EvaluationSums& sums) {
  const std::int64_t versions = versions_of(batch);
  for (std::int64_t pieces = 1, attempts = 1;;) {
    std::string error;
    try {
      std::vector<Loss> losses;
      for_each_piece(batch, pieces, [&](const Batch& piece) {
        losses.push_back(as_loss(engine.forward(objective, piece, /*training=*/false)));
      });
      return sums.add(losses);
    } catch (...) {
      error = out_of_memory_text_or_rethrow();
    }
    if (versions_of(batch) != versions)
      throw UsageError(message(kWritesToBatch, " It would be measured again, since memory ran out: ", error));
    const std::int64_t next = free_and_ask_for_retry(
        engine, {engine.run(), /*training=*/false, batch_size(batch), pieces, attempts, std::move(error)});
    attempts = next == pieces ? attempts + 1 : 1;
    pieces = next;
  }
}

}  // namespace looptorch::detail
