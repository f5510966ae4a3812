// SPDX-License-Identifier: MIT
// Does the window of a first update again while its gradients overflow, until the policy that scales losses
// has found a scale: no sample of a run's beginning is lost. Compiled only where a policy has `on_overflow`.
// Until an update was made once, its windows' batches are kept, and the host waits for its gradients.
#pragma once

#include <looptorch/data/batch.hpp>
#include <looptorch/loop/ballot.hpp>
#include <looptorch/loop/batch_range.hpp>
#include <looptorch/loop/context.hpp>
#include <looptorch/loop/step/retry.hpp>
#include <looptorch/loop/step/shard.hpp>
#include <looptorch/loop/step/side_by_side.hpp>

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

namespace looptorch::detail {

/// True if windows of such batches can be kept for the search.
template <class Engine, class Batch>
inline constexpr bool kSeeksScale = Engine::kFindsScale&& std::is_copy_constructible_v<Batch>;

/// Gives a kept batch tensors of its own, if its range may refill them before the window ends: a loader never
/// does.
template <class Engine, class Batch>
void detach_from_range(Engine& engine, Batch& kept) {
  if (engine.window_length() == 1 || engine.window().pinned == PinnedSource::in_place) return;
  for_each_tensor(kept, [](at::Tensor& tensor) {
    if (tensor.defined()) tensor = tensor.detach().clone();
  });
}

/// Differentiates the kept batches of a window whose micro-batches stream, in the turns and shards that they
/// had.
template <class Engine, class Batch>
void differentiate_stream(Engine& engine, std::vector<Batch>& kept) {
  for (std::size_t number = 0; number < kept.size(); ++number) {
    const std::int64_t place = engine.window().origin.narrowed(number).place().first_batch;
    const std::int64_t in_window = engine.ranks() ? place - engine.progress().batch : 0;
    beside_other_ranks(engine, in_window, [&] {
      enter_shard(engine, in_window);
      if constexpr (Engine::kRetries)
        differentiate_pieces<0>(engine, kept[number], number);
      else
        with_batch_on(engine.run().device(), PinnedSource::staged, kept[number],
                      [&](const auto& there) { differentiate<0>(engine, there, number); });
    });
  }
}

/// Differentiates the window's kept batches for update I from the state in which its share began.
template <std::size_t I, class Engine, class Batch>
void differentiate_anew(Engine& engine, std::vector<Batch>& kept) {
  engine.attempt().put_back(engine.run().updates()[I], engine.works()[I]);
  if constexpr (!Engine::kStreams) {
    differentiate_kept<I>(engine, kept);
  } else {
    if (engine.ranks()) engine.ranks()->drop_sums();
    engine.window().turns = 0;
    if constexpr (Engine::kRetries)
      with_retries<I>(engine, kept, [&] { differentiate_stream(engine, kept); });
    else
      differentiate_stream(engine, kept);
  }
}

/// True if update I's gradients overflow and another scale may help: no loss itself is NaN or infinite. On
/// several ranks, if those of one do and no rank has such a loss.
template <std::size_t I, class Engine>
[[nodiscard]] bool overflows_by_scale(Engine& engine) {
  UpdateWork& work = engine.works()[I];
  bool overflowed = work.overflowed, hopeless = work.loss_overflowed;
  if constexpr (Engine::kHasRanks)
    if (engine.ranks()) {
      if constexpr (Engine::kStreams) wait_side_by_side(engine);
      Ballot ballot;
      ballot.any("overflowed", overflowed);
      ballot.any("hopeless", hopeless);
      engine.ranks()->agree(ballot,
                            message("the loss scale of update ", I + 1, " in step ", engine.progress().step));
    }
  return overflowed && !hopeless;
}

/// Does update I's share of the window again until its gradients are finite, or no policy knows what to
/// change.
template <std::size_t I, class Engine, class Kept>
void seek_scale([[maybe_unused]] Engine& engine, [[maybe_unused]] Kept& kept) {
  if constexpr (Engine::kFindsScale) {
    if constexpr (kSeeksScale<Engine, typename Kept::value_type>)
      for (std::int64_t retries = 0; engine.template seeks_scale<I>() && overflows_by_scale<I>(engine);
           ++retries) {
        OverflowContext context(engine.run(), I, retries);
        engine.stack().template run<on_overflow_hook>(context);
        if (!context.retries()) return;
        differentiate_anew<I>(engine, kept);
      }
  }
}

}  // namespace looptorch::detail
