// SPDX-License-Identifier: MIT
// Does an update's share of a window again when memory ran out in it: from the state in which it began, with
// each micro-batch split into more pieces, whose weights make the sum what it was. Compiled only where a
// policy has `pieces`.
#pragma once

#include <looptorch/base/what_of.hpp>
#include <looptorch/data/batch.hpp>
#include <looptorch/data/batch_slice.hpp>
#include <looptorch/loop/batch_range.hpp>
#include <looptorch/loop/compose/measure.hpp>
#include <looptorch/loop/context.hpp>
#include <looptorch/loop/step/optimizer_step.hpp>
#include <looptorch/loop/step/update_step.hpp>
#include <looptorch/memory/empty_cache.hpp>

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>
#include <utility>
#include <vector>

namespace looptorch::detail {

/// Returns into how many pieces policies split micro-batches.
template <class Engine>
[[nodiscard]] std::int64_t pieces_of(Engine& engine) {
  std::int64_t pieces = 1;
  if (engine.window().may_retry)
    engine.stack().template each_with<pieces_hook>(
        [&](auto& slot) { pieces = std::max(pieces, pieces_hook::call(slot.policy, slot.state)); });
  return pieces;
}

/// Calls `use(part)` for each of the pieces that a batch of at least one sample is split into.
template <class Batch, class Use>
void for_each_piece(const Batch& batch, std::int64_t pieces, Use&& use) {
  const std::int64_t samples = batch_size(batch);
  if (pieces <= 1 || samples <= 1) return use(batch);
  const std::int64_t length = (samples + pieces - 1) / pieces;
  for (std::int64_t begin = 0; begin < samples; begin += length)
    use(slice_batch(batch, begin, std::min(begin + length, samples)));
}

/// Adds a kept micro-batch to update I, piece by piece.
template <std::size_t I, class Engine, class Batch>
void differentiate_pieces(Engine& engine, const Batch& batch, std::size_t number) {
  for_each_piece(batch, engine.works()[I].pieces, [&](const Batch& piece) {
    with_batch_on(engine.run().device(), engine.window().pinned, piece,
                  [&](const auto& there) { differentiate<I>(engine, there, number); });
  });
}

/// Adds all of the window's kept micro-batches to update I.
template <std::size_t I, class Engine, class Batch>
void differentiate_all_pieces(Engine& engine, const std::vector<Batch>& kept) {
  for (std::size_t number = 0; number < kept.size(); ++number)
    differentiate_pieces<I>(engine, kept[number], number);
}

/// Asks the policies what to do about memory that ran out, once it has been freed. Returns the pieces of the
/// next attempt. Throws c10::OutOfMemoryError if none wants one.
template <class Engine>
[[nodiscard]] std::int64_t ask_for_retry(Engine& engine, OutOfMemoryContext context) {
  empty_cache(engine.run().device());
  if (engine.window().may_retry) engine.stack().template run<on_out_of_memory_hook>(context);
  TORCH_CHECK_WITH(OutOfMemoryError, context.pieces() > 0, context.error);
  return context.pieces();
}

/// Does update I's share again until memory suffices, or no policy wants another attempt.
template <std::size_t I, class Engine, class Batch>
void differentiate_again(Engine& engine, const std::vector<Batch>& kept, std::string error) {
  UpdateView& view = engine.run().updates()[I];
  UpdateWork& work = engine.works()[I];
  std::int64_t samples = 0;
  for (const Batch& batch : kept) samples = std::max(samples, batch_size(batch));
  while (true) {
    engine.attempt().put_back(view, work);
    const std::int64_t pieces = ask_for_retry(
        engine, {engine.run(), /*trains=*/true, samples, work.pieces, work.attempts, std::move(error)});
    work.attempts = pieces == work.pieces ? work.attempts + 1 : 1;
    work.pieces = pieces;
    try {
      engine.attempt().begin(engine.buffers(), work);
      return differentiate_all_pieces<I>(engine, kept);
    } catch (const c10::OutOfMemoryError&) {
      error = what_of(std::current_exception());
    }
  }
}

/// Calls `share()`, which differentiates some of the kept batches for update I. If memory runs out, does
/// the share again, all of the kept batches.
template <std::size_t I, class Engine, class Batch, class Share>
void with_retries(Engine& engine, const std::vector<Batch>& kept, Share&& share) {
  std::string error;
  try {
    engine.attempt().begin(engine.buffers(), engine.works()[I]);
    return share();
  } catch (const c10::OutOfMemoryError&) {
    error = what_of(std::current_exception());
  }
  differentiate_again<I>(engine, kept, std::move(error));
}

/// Differentiates all of the window's kept batches for update I.
template <std::size_t I, class Engine, class Batch>
void differentiate_kept(Engine& engine, const std::vector<Batch>& kept) {
  if constexpr (Engine::kRetries && !Engine::template kByClosure<I>)
    with_retries<I>(engine, kept, [&] { differentiate_all_pieces<I>(engine, kept); });
  else
    differentiate_all<I>(engine, kept);
}

/// Tells whether an optimizer has changed parameters, whose versions it raises.
class UnchangedParameters {
 public:
  explicit UnchangedParameters(const UpdateView& view) : view_(view) {
    for (const at::Tensor& parameter : view.parameters) versions_.push_back(parameter._version());
  }
  [[nodiscard]] bool are_as_before() const {
    for (std::size_t i = 0; i < versions_.size(); ++i)
      if (view_.parameters[i]._version() != versions_[i]) return false;
    return true;
  }

 private:
  const UpdateView& view_;
  std::vector<std::int64_t> versions_;
};

/// True for an optimizer that changes nothing before all the memory that it needs is there.
template <class Optimizer>
inline constexpr bool fails_whole = FoldingOptimizer<Optimizer>;

/// Makes update I. If memory runs out before any parameter has changed, does its share again and tries once
/// more; not on several ranks, whose sums are there only once.
template <std::size_t I, class Engine, class Batch>
void finish_update_with_retries(Engine& engine, const std::vector<Batch>& kept) {
  const UpdateView& view = engine.run().updates()[I];
  while (true) {
    const UnchangedParameters parameters(view);
    bool began = false;
    std::string error;
    try {
      finish_update<I>(engine, [&](auto& optimizer, UpdateContext& context, const GradientScale&) {
        began = !fails_whole<std::remove_reference_t<decltype(optimizer)>>;
        return step_optimizer(optimizer, context);
      });
      return engine.attempt().end();
    } catch (const c10::OutOfMemoryError&) {
      if (began || engine.ranks() || !parameters.are_as_before()) throw;
      error = what_of(std::current_exception());
    }
    differentiate_again<I>(engine, kept, std::move(error));
  }
}

/// Adds one batch of an evaluation to its sums, in pieces if memory runs out.
template <class Engine, class Objective, class Batch>
void measure_with_retries(Engine& engine, Objective& objective, const Batch& batch, EvaluationSums& sums) {
  for (std::int64_t pieces = 1, attempts = 1;;) {
    std::string error;
    try {
      std::vector<Loss> losses;
      for_each_piece(batch, pieces, [&](const Batch& piece) {
        losses.push_back(as_loss(engine.forward(objective, piece, /*training=*/false)));
      });
      return sums.add(losses);
    } catch (const c10::OutOfMemoryError&) {
      error = what_of(std::current_exception());
    }
    const std::int64_t next = ask_for_retry(
        engine, {engine.run(), /*trains=*/false, batch_size(batch), pieces, attempts, std::move(error)});
    attempts = next == pieces ? attempts + 1 : 1;
    pieces = next;
  }
}

}  // namespace looptorch::detail
