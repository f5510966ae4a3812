// SPDX-License-Identifier: MIT
// A snapshot of a reproducible run on several ranks, as on the number of ranks that goes on with it: windows
// and the place in the epoch are counted in one rank's micro-batches, of which each number of ranks has
// another.
#pragma once

#include <looptorch/base/state_dict.hpp>

#include <cstdint>
#include <string>
#include <utility>

namespace looptorch::detail {

/// Returns the windows that so many batches make.
[[nodiscard]] inline std::int64_t windows_of(std::int64_t batches, std::int64_t length) {
  return batches / length + (batches % length != 0);
}

/// Returns a snapshot's state as `ranks` ranks would have written it, if it is of a reproducible run, and
/// otherwise as it is. A window keeps its micro-batches. `window` is its length here, and `batches` the
/// number in an epoch here, or -1: as many windows may be fewer by one on a rank other than the first, which
/// has none of a short last window.
[[nodiscard]] inline StateDict as_of_ranks(StateDict state, std::int64_t ranks, std::int64_t window,
                                           std::int64_t batches, bool leads) {
  if (!state.contains("ranks")) return state;
  const auto saved_ranks = state.get<std::int64_t>("ranks");
  const auto saved_window = state.get<std::int64_t>("micro_batches");
  if (ranks < 1 || saved_window < 1 || saved_window * saved_ranks != window * ranks) return state;
  state.set("micro_batches", window);
  const auto batch = state.get<std::int64_t>("run.progress.batch");
  state.set("run.progress.batch", windows_of(batch, saved_window) * window);
  if (batches >= 0 && state.contains("loader.batches")) {
    const std::int64_t saved = windows_of(state.get<std::int64_t>("loader.batches"), saved_window);
    const std::int64_t here = windows_of(batches, window);
    if (here == saved || (!leads && here + 1 == saved)) state.set("loader.batches", batches);
  }
  return state;
}

}  // namespace looptorch::detail
