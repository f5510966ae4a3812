// SPDX-License-Identifier: MIT
// What a loader remembers of its epochs beyond their end. Written and read by the reader's thread only.
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
  std::shared_ptr<const StateDict> stream = {};  ///< what a stream that can go on has saved for `position`
  bool told_drawing = false;                     ///< that samples draw from LibTorch's default generator
};

}  // namespace looptorch::detail
