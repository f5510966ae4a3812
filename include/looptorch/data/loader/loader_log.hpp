// SPDX-License-Identifier: MIT
// Holds what a loader keeps from one epoch to the next: its position, skipped samples and statistics. Only
// the thread that reads the loader's batches uses it.
#pragma once

#include <looptorch/base/state_dict.hpp>
#include <looptorch/data/loader/loader_error.hpp>
#include <looptorch/data/loader/loader_position.hpp>
#include <looptorch/data/loader/loader_stats.hpp>

#include <memory>

namespace looptorch::detail {

struct LoaderLog {
  LoaderPosition position;
  SkippedSamples skipped;
  LoaderStats stats;
  std::shared_ptr<const StateDict> stream = {};  ///< the stream's saved state at `position`, if it has one
  bool warned_of_draws = false;  ///< the warning about LibTorch's default generator was printed
};

}  // namespace looptorch::detail
