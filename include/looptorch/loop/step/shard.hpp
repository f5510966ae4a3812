// SPDX-License-Identifier: MIT
// Where ranks keep the sums of a window's shards apart, so that the result does not depend on their number.
#pragma once

#include <cstdint>

namespace looptorch::detail {

/// Begins the micro-batch with this number in the window where ranks keep the sums of shards apart.
template <class Engine>
void enter_shard([[maybe_unused]] Engine& engine, [[maybe_unused]] std::int64_t number) {
  if constexpr (Engine::kHasRanks) {
    if (!engine.ranks() || engine.ranks()->shards() == 0) return;
    engine.works()[0].losses.enter_shard(engine.ranks()->enter_micro_batch(
        engine.run().updates()[0].parameters, engine.progress().step, number));
  }
}

}  // namespace looptorch::detail
