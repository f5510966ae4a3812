// SPDX-License-Identifier: MIT
// How CachedDataset is set up, how it is built ahead of training, and what it reports.
#pragma once

#include <looptorch/base/error.hpp>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace looptorch {

/// Options of `CachedDataset`. The order of the fields is API; new ones come last.
struct CacheOptions {
  std::filesystem::path folder =
      {};  ///< made if it is not there; several datasets and processes may share it
  std::string settings =
      {};  ///< all that a sample depends on beside its identity, such as "log-mel 80, 16 kHz"; not empty
  std::int64_t version = 1;    ///< of the code that makes the samples: raise it when that changes
  std::int64_t max_bytes = 0;  ///< of the folder; what does not fit is computed each time. 0: no limit
};

/// What a cache has done since it was opened.
struct CacheCounts {
  std::int64_t read = 0;                ///< samples from the disk
  std::int64_t computed = 0;            ///< samples made anew
  std::int64_t damaged = 0;             ///< entries found cut off or changed; their samples are made anew
  std::int64_t not_stored = 0;          ///< samples computed and not kept: beyond max_bytes, or not writable
  std::int64_t bytes = 0;               ///< on disk for these settings, by all datasets and processes
  std::string not_stored_because = {};  ///< the reason of the last one that was not; empty where all were
};

/// How far `CachedDataset::build` is.
struct CacheProgress {
  std::int64_t done = 0;   ///< samples that were dealt with, in whatever way
  std::int64_t total = 0;  ///< samples of the dataset
  std::int64_t added = 0;  ///< of the done ones, computed by this build
  double seconds = 0;      ///< since the build began
};

/// Options of `CachedDataset::build`. The order of the fields is API; new ones come last.
struct CacheBuildOptions {
  std::int64_t workers = 2;  ///< threads that compute samples
  /// Called by the thread that builds: every `interval`, and once at the end.
  std::function<void(const CacheProgress&)> progress = {};
  std::chrono::milliseconds interval{500};
  bool skip_failures =
      false;  ///< true: samples that throw are listed in the result; false: the first ends it
};

/// A sample that could not be computed.
struct CacheFailure {
  std::int64_t index;
  std::string what;
};

/// What `CachedDataset::build` found and did.
struct CacheBuildResult {
  std::int64_t present = 0;  ///< samples that were there, or that another process added
  std::int64_t added = 0;    ///< samples that this build computed
  std::int64_t left_out =
      0;  ///< samples that are not there for want of room: one did not fit, and no other was tried
  std::vector<CacheFailure> failures;  ///< by index; empty unless `skip_failures`
};

/// What a sample threw while a cache was built; the original exception is nested.
struct CacheBuildError : Error {
  CacheBuildError(const std::string& what, std::int64_t at_index) : Error(what), index(at_index) {}
  std::int64_t index;
};

/// A progress callback that rewrites one line: `cache: 120 of 1000 samples, 45 a second`.
inline std::function<void(const CacheProgress&)> print_cache_progress(std::FILE* file = stderr) {
  return [file](const CacheProgress& progress) {
    const double rate = progress.seconds > 0 ? static_cast<double>(progress.added) / progress.seconds : 0;
    std::fprintf(file, "\rcache: %lld of %lld samples, %.0f a second%s",
                 static_cast<long long>(progress.done), static_cast<long long>(progress.total), rate,
                 progress.done == progress.total ? "\n" : "");
    std::fflush(file);
  };
}

}  // namespace looptorch
