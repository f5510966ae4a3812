// SPDX-License-Identifier: MIT
// Keeps ranks in lockstep, micro-batch by micro-batch, which SyncBN needs: its layers compute statistics over
// all ranks in each forward and backward. A rank without a batch joins with empty statistics. Without SyncBN
// ranks meet only at a window's end.
#pragma once

#include <looptorch/loop/ranks.hpp>

#include <cstdint>

namespace looptorch::detail {

/// True if the ranks run the micro-batches of the window under way in lockstep.
template <class Engine>
[[nodiscard]] bool is_lockstep(Engine& engine) {
  return engine.ranks() && engine.ranks()->syncs_batch_norm() && engine.works()[0].due;
}

/// Calls `differentiate()` for this rank's micro-batch `number` of the window, while the other ranks are in
/// their micro-batches of that number.
template <class Engine, class Differentiate>
void run_in_lockstep(Engine& engine, std::int64_t number, Differentiate&& differentiate) {
  if (!is_lockstep(engine)) return differentiate();
  Ranks& ranks = *engine.ranks().get();
  std::int64_t& turns = engine.window().shared.lockstep_turns;
  for (; turns < number; ++turns) {  // batches that this rank's loader skipped
    (void)ranks.begin_micro_batch(Ranks::Turn::later);
    ranks.end_micro_batch();
  }
  (void)ranks.begin_micro_batch(Ranks::Turn::now);
  differentiate();
  ranks.end_micro_batch();
  ++turns;
}

/// Joins the other ranks' micro-batches, without one of its own, until no rank has any left in the window.
template <class Engine>
void wait_in_lockstep(Engine& engine) {
  if (!is_lockstep(engine)) return;
  Ranks& ranks = *engine.ranks().get();
  std::int64_t& turns = engine.window().shared.lockstep_turns;
  for (; turns < engine.window_length() && ranks.begin_micro_batch(Ranks::Turn::over); ++turns)
    ranks.end_micro_batch();
}

}  // namespace looptorch::detail
