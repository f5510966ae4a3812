// SPDX-License-Identifier: MIT
// What a loader remembers of its epochs beyond their end. Written and read by the reader's thread only.
#pragma once

#include <looptorch/data/loader_error.hpp>
#include <looptorch/data/loader_position.hpp>
#include <looptorch/data/loader_stats.hpp>

namespace looptorch::detail {

struct LoaderLog {
  LoaderPosition position;
  SkippedSamples skipped;
  LoaderStats stats;
};

}  // namespace looptorch::detail
