// SPDX-License-Identifier: MIT
// Declares the options of PinnedPrefetchLoader: batch size, workers, prefetching, pinning, timeout, and what
// to do when a sample fails.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/data/loader/loader_error.hpp>

#include <cstdint>
#include <optional>
#include <type_traits>

namespace looptorch {

/// Options of `PinnedPrefetchLoader`. The order of the fields is API; new ones come last.
struct LoaderOptions {
  std::int64_t batch_size = 1;
  std::int64_t workers = 2;   ///< threads that decode and collate; 0: the consumer's, with the same results
  std::int64_t prefetch = 2;  ///< finished batches that may wait, beside the one that each worker makes
  bool drop_last = false;     ///< drops a last batch that is smaller than batch_size
  /// Makes page-locked batches, for asynchronous copies. Unset: once this process uses an accelerator, so
  /// that a run on the CPU creates no CUDA context. true: wherever there is an accelerator. false: never.
  std::optional<bool> pin = std::nullopt;
  std::uint64_t seed = 0;            ///< `SampleContext::seed` is derived from it, the epoch and the index
  OnError on_error = OnError::fail;  ///< the treatment of a sample that fails
  double starving = 0.2;  ///< share of waiting above which the loader warns once, on stderr; 1: never
  double timeout = 0;     ///< seconds that the reader waits for a batch before LoaderTimeout; 0: no limit
};

namespace detail {

template <class T>
concept NotLoaderOptions = !std::is_same_v<std::remove_cvref_t<T>, LoaderOptions>;

inline void require_option(bool holds, const char* name, std::int64_t value, const char* expected) {
  if (!holds)
    throw UsageError(message("PinnedPrefetchLoader: ", name, " is ", value, "; it must be ", expected));
}

inline void check_options(const LoaderOptions& options) {
  require_option(options.workers >= 0, "workers", options.workers, "0 (inline) or more");
  require_option(options.prefetch >= 0, "prefetch", options.prefetch, "0 or more");
  if (!(options.starving >= 0 && options.starving <= 1))
    throw UsageError(
        message("PinnedPrefetchLoader: starving is ", options.starving, "; it must be between 0 and 1"));
  if (!(options.timeout >= 0))
    throw UsageError(message("PinnedPrefetchLoader: timeout is ", options.timeout,
                             "; it must be 0 (none) or a number of seconds"));
  if (options.timeout > 0 && options.workers == 0)
    throw UsageError(
        "PinnedPrefetchLoader: timeout needs workers; with workers = 0 the reader itself loads the sample");
}

}  // namespace detail
}  // namespace looptorch
