// SPDX-License-Identifier: MIT
// Finds the first loss scale for fp16. Until one update has been applied, a window whose gradients overflow
// is rolled back and rerun at a lower scale, so that no sample is lost. During that time batches are kept,
// and the host waits for the gradients.
#pragma once

#include <looptorch/data/batch/batch.hpp>
#include <looptorch/loop/step/redo_state.hpp>
#include <looptorch/redo/batch_watch.hpp>
#include <looptorch/redo/retry.hpp>
#include <looptorch/redo/train_rerunnable.hpp>

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

namespace looptorch::detail {

/// True if the search for a scale can keep batches of this type.
template <class Engine, class Batch>
inline constexpr bool kKeepsForScale = RedoReasons<Engine>::kSeeksScale&& std::is_copy_constructible_v<Batch>;

/// True if update I's gradients overflow and another scale may help: no loss is NaN or infinite. On several
/// ranks, if one rank's gradients overflow and no rank has such a loss.
template <std::size_t I, class Engine>
[[nodiscard]] bool overflows_by_scale(Engine& engine) {
  const UpdateWork& work = engine.works()[I];
  bool overflowed = work.overflowed, loss_overflowed = work.loss_overflowed;
  engine.ranks().template reduce_overflow<I>(engine, overflowed, loss_overflowed);
  return overflowed && !loss_overflowed;
}

/// Learns from the window's kept batches for update I, from its initial state.
template <std::size_t I, class Engine, class Batch>
void rerun_at_scale(Engine& engine, std::vector<Batch>& kept) {
  if (engine.redo().batch_was_written)
    throw UsageError(message(
        kWritesToBatch, " The window would be retried at a lower loss scale, since gradients overflow."));
  engine.redo().window_start.rewind(engine.run().updates()[I], engine.works()[I]);
  if constexpr (Engine::kStreams) engine.ranks().drop_sums(engine);
  with_retries<I>(engine, kept, [&] { train_kept_window<I>(engine, kept); });
}

/// Retries update I's window until its gradients are finite, or no lower scale is left.
template <std::size_t I, class Engine, class Batch>
void seek_scale([[maybe_unused]] Engine& engine, [[maybe_unused]] std::vector<Batch>& kept) {
  if constexpr (kKeepsForScale<Engine, Batch>)
    for (std::int64_t retries = 0; may_seek_scale<I>(engine) && overflows_by_scale<I>(engine); ++retries) {
      if (!engine.loss_scale()->back_off(retries)) return;
      rerun_at_scale<I>(engine, kept);
    }
}

}  // namespace looptorch::detail
