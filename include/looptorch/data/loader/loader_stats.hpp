// SPDX-License-Identifier: MIT
// How long a loader was waited for, how full its queue was, and what its workers did: whether the data or the
// model is the bottleneck. Costs two looks at the clock a batch, and two in the worker that makes it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace looptorch {

/// Sums since the loader was made, up to the batch handed out last; `since` gives those of a part.
struct LoaderStats {
  std::int64_t batches = 0;     ///< handed out
  std::int64_t asked = 0;       ///< times that a batch was asked for, those that were passed over too
  std::int64_t waited_for = 0;  ///< times that it was not ready
  double wait_seconds = 0;      ///< in which the reader waited for them
  double use_seconds = 0;       ///< between a batch and asking for the next one
  std::int64_t skipped = 0;     ///< samples that were left out, see OnError
  std::int64_t queued = 0;      ///< finished batches that lay ready, summed over all askings
  std::vector<double> worker_seconds =
      {};                             ///< in which each worker made batches, without waiting for a stream
  std::int64_t slots = 0;             ///< that the loader has now: memory of so many batches; 0 where it pins
  std::int64_t slot_bytes = 0;        ///< of these
  std::int64_t slot_allocations = 0;  ///< tensors for which a slot was made, or had to grow
  std::int64_t slot_reuses = 0;       ///< tensors that were collated into memory which was there
  /// The loader need not say that the data cannot keep up: it has, or somebody who shows these does.
  mutable bool told_starving = false;

  /// The part of the reader's time in which it waited, in [0, 1].
  [[nodiscard]] double wait_share() const {
    const double seconds = wait_seconds + use_seconds;
    return seconds > 0 ? wait_seconds / seconds : 0;
  }

  /// Finished batches that lay ready when one was asked for, on average.
  [[nodiscard]] double queue_depth() const {
    return asked > 0 ? static_cast<double>(queued) / static_cast<double>(asked) : 0;
  }

  /// What has been added to `earlier`, a former copy of these.
  [[nodiscard]] LoaderStats since(const LoaderStats& earlier) const {
    LoaderStats part = *this;
    part.batches -= earlier.batches;
    part.asked -= earlier.asked;
    part.waited_for -= earlier.waited_for;
    part.wait_seconds -= earlier.wait_seconds;
    part.use_seconds -= earlier.use_seconds;
    part.skipped -= earlier.skipped;
    part.queued -= earlier.queued;
    part.slot_allocations -= earlier.slot_allocations;
    part.slot_reuses -= earlier.slot_reuses;
    for (std::size_t i = 0; i < std::min(earlier.worker_seconds.size(), part.worker_seconds.size()); ++i)
      part.worker_seconds[i] -= earlier.worker_seconds[i];
    return part;
  }
};

}  // namespace looptorch
