// SPDX-License-Identifier: MIT
// Decides whether a run waits too long for its data, and writes the advice that the loader or ShowProgress
// then prints.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/data/loader/loader_stats.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>
#include <thread>

namespace looptorch::detail {

/// True if waiting takes more than `share` of the time. Waits for an epoch's first batches, which cannot be
/// prefetched, do not count. False before 20 batches, and while the waits that count are below 1 s.
inline bool is_data_bound(const LoaderStats& loading, double share) {
  constexpr std::int64_t kBatches = 20;
  constexpr double kSeconds = 1;
  const double waited = loading.wait_seconds - loading.opening_seconds;
  return loading.batches >= kBatches && waited >= kSeconds &&
         waited > share * (loading.wait_seconds + loading.use_seconds);
}

/// Returns the share of their time in which the workers made batches.
inline double busy_share(const LoaderStats& loading) {
  const auto& busy = loading.worker_seconds;
  const double seconds = (loading.wait_seconds + loading.use_seconds) * static_cast<double>(busy.size());
  return seconds > 0 ? std::accumulate(busy.begin(), busy.end(), 0.0) / seconds : 0;
}

/// Advises more workers if there are cores for them and the present ones are busy.
inline std::string worker_advice(std::size_t workers, std::size_t cores, double busy) {
  if (workers == 0) return "load in the background, by workers = 1 or more; ";
  if (busy < 0.5) return "";  // they wait for each other, at a stream's `next`
  return cores > workers ? message("more workers, of which there are ", workers, " for ", cores, " cores; ")
                         : "";
}

/// Returns one line: the share of waiting, and remedies.
inline std::string data_bound_text(const LoaderStats& loading,
                                   std::size_t cores = std::thread::hardware_concurrency()) {
  const auto percent = [](double share) { return std::lround(100 * share); };
  const std::size_t workers = loading.worker_seconds.size();
  const std::string busy =
      workers == 0 ? "" : message(" (workers: ", workers, ", busy ", percent(busy_share(loading)), " %)");
  return message(
      "the data cannot keep up: ", percent(loading.wait_share()), " % of the time was spent waiting for it",
      busy, ". What helps: ", worker_advice(workers, cores, busy_share(loading)),
      "a CachedDataset, which computes features once; a LengthBucketSampler, which loads and pads less. "
      "See docs/loader.md#waiting");
}

}  // namespace looptorch::detail
