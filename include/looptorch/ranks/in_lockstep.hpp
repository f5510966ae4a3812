// SPDX-License-Identifier: MIT
// Runs a window's micro-batches by turns, for SyncBN: its layers take statistics over all ranks, so all ranks
// must be in the same micro-batch. A rank that has no batch left takes empty turns. Without SyncBN there are
// no turns.
#pragma once

#include <looptorch/loop/ranks.hpp>

#include <cstdint>

namespace looptorch::detail {

/// True if the window under way goes by turns.
template <class Engine>
[[nodiscard]] bool is_lockstep(Engine& engine) {
  return engine.ranks() && engine.ranks()->syncs_batch_norm() && engine.works()[0].due;
}

/// Calls `differentiate()` for this rank's micro-batch `number` of the window, in the turn of that number.
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

/// Takes empty turns until no rank has a micro-batch left in the window.
template <class Engine>
void wait_in_lockstep(Engine& engine) {
  if (!is_lockstep(engine)) return;
  Ranks& ranks = *engine.ranks().get();
  std::int64_t& turns = engine.window().shared.lockstep_turns;
  for (; turns < engine.window_length() && ranks.begin_micro_batch(Ranks::Turn::over); ++turns)
    ranks.end_micro_batch();
}

}  // namespace looptorch::detail
