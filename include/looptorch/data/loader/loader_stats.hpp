// SPDX-License-Identifier: MIT
// Measures how long training waited for batches, how many were ready, and how long each worker worked. This
// shows whether the data or the model is the bottleneck. Costs two clock readings per batch, and two in the
// worker that makes it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace looptorch {

/// Sums since the loader was made, up to the last batch yielded. `since` returns the difference to an earlier
/// copy.
struct LoaderStats {
  std::int64_t batches = 0;     ///< yielded
  std::int64_t asked = 0;       ///< requests for a batch, including those for batches that were skipped
  std::int64_t waited_for = 0;  ///< requests whose batch was not ready
  double wait_seconds = 0;      ///< time that the reader waited
  double opening_seconds = 0;   ///< part of it: for the first batches of epochs
  double use_seconds = 0;       ///< time between a batch and the next request
  std::int64_t skipped = 0;     ///< samples that were skipped; see OnError
  std::int64_t queued = 0;      ///< finished batches that were ready, summed over all requests
  /// Time that each worker made batches, without waits for a stream.
  std::vector<double> worker_seconds = {};
  std::int64_t slots = 0;             ///< batches whose memory the loader holds now; 0 if it pins
  std::int64_t slot_bytes = 0;        ///< bytes of these slots
  std::int64_t slot_allocations = 0;  ///< tensors for which a slot was created or enlarged
  std::int64_t slot_reuses = 0;       ///< tensors that were collated into reused memory
  /// True if the warning of slow data was printed, or if a policy that shows these numbers will print it.
  mutable bool warned_data_bound = false;

  /// Returns the share of the reader's time in which it waited, in [0, 1].
  [[nodiscard]] double wait_share() const {
    const double seconds = wait_seconds + use_seconds;
    return seconds > 0 ? wait_seconds / seconds : 0;
  }

  /// Returns the mean number of finished batches that were ready at a request.
  [[nodiscard]] double queue_depth() const {
    return asked > 0 ? static_cast<double>(queued) / static_cast<double>(asked) : 0;
  }

  /// Returns the difference to `earlier`, a former copy.
  [[nodiscard]] LoaderStats since(const LoaderStats& earlier) const {
    LoaderStats part = *this;
    part.batches -= earlier.batches;
    part.asked -= earlier.asked;
    part.waited_for -= earlier.waited_for;
    part.wait_seconds -= earlier.wait_seconds;
    part.opening_seconds -= earlier.opening_seconds;
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
