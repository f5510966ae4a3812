// SPDX-License-Identifier: MIT
// Runs a window's micro-batches in lockstep on ranks with SyncBN: a rank without a batch joins with an empty
// turn. Other runs use nothing of this.
#pragma once

#include <looptorch/loop/ranks.hpp>

#include <cstdint>

namespace looptorch::detail {

template <class Engine>
[[nodiscard]] bool is_lockstep(Engine& engine) {
  return engine.ranks() && engine.ranks()->syncs_batch_norm() && engine.works()[0].due;
}

/// Calls `share()`, which differentiates a micro-batch, while the other ranks do theirs. `number` is its
/// number in the window.
template <class Engine, class Share>
void join_other_ranks(Engine& engine, std::int64_t number, Share&& share) {
  if (!is_lockstep(engine)) return share();
  Ranks& ranks = *engine.ranks().get();
  std::int64_t& turns = engine.window().turns;
  for (; turns < number; ++turns) {  // batches that this rank's loader skipped
    (void)ranks.begin_micro_batch(Ranks::Turn::later);
    ranks.end_micro_batch();
  }
  (void)ranks.begin_micro_batch(Ranks::Turn::now);
  share();
  ranks.end_micro_batch();
  ++turns;
}

/// Joins the other ranks' micro-batches after this rank's last one in the window.
template <class Engine>
void wait_in_lockstep(Engine& engine) {
  if (!is_lockstep(engine)) return;
  Ranks& ranks = *engine.ranks().get();
  std::int64_t& turns = engine.window().turns;
  for (; turns < engine.window_length() && ranks.begin_micro_batch(Ranks::Turn::over); ++turns)
    ranks.end_micro_batch();
}

}  // namespace looptorch::detail
