// SPDX-License-Identifier: MIT
// A fit's range of batches as snapshots know it. Snapshots go on counting as the run began, so that any later
// resume can read them. staged_feed.hpp compares the range with a snapshot's.
#pragma once

#include <looptorch/base/state_dict.hpp>
#include <looptorch/data/loader/regrouping.hpp>
#include <looptorch/loop/feed.hpp>

#include <cstdint>
#include <optional>

namespace looptorch::detail {

/// Returns the number of batches in an epoch; empty where it is not known.
[[nodiscard]] inline std::optional<std::int64_t> batches_of(const StateDict& identity) {
  return identity.contains("batches") ? std::optional(identity.get<std::int64_t>("batches")) : std::nullopt;
}

/// A range as a run's snapshots describe it.
struct SavedFeed {
  StateDict identity = {};                    ///< of the batches with which the run began; empty for no range
  std::int64_t batch_size = 0;                ///< of these; 0: not known
  std::optional<Regrouping> regrouping = {};  ///< from these to the batches that are read

  /// Writes the range, the length of a window, and the position `batch`, as the run began.
  void save(std::int64_t window_length, std::int64_t batch, StateDict& out) const {
    out.set("loader", identity);
    out.set("micro_batches", regrouping ? regrouping->planned.micro_batches : window_length);
    if (batch_size > 0) out.set("batch_size", batch_size);
    if (regrouping) out.set("run.progress.batch", regrouping->to_planned(batch, batches_of(identity)));
  }
};

/// Returns how snapshots describe a fit's range.
[[nodiscard]] inline SavedFeed saved_feed(const Feed& feed) {
  if (!feed.source) return {.identity = feed.identity()};
  const auto& how = feed.source->regrouping();
  return {.identity = feed.source->planned_identity(),
          .batch_size = how ? how->planned.batch_size : feed.source->batch_size(),
          .regrouping = how};
}

}  // namespace looptorch::detail
