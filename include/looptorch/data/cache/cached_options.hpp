// SPDX-License-Identifier: MIT
// Declares the options of CachedDataset and of `CachedDataset::build`, which fills a cache ahead of training,
// and the counts that both report.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/process/terminal.hpp>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace looptorch {

/// Options of `CachedDataset`. The order of the fields is API; new ones come last.
struct CacheOptions {
  std::filesystem::path folder = {};  ///< created if missing; several datasets and processes may share it
  /// Names what a sample depends on apart from its identity, such as "log-mel 80, 16 kHz"; not empty.
  std::string settings = {};
  std::int64_t version = 1;    ///< version of the code that computes samples
  std::int64_t max_bytes = 0;  ///< size limit of the folder; samples beyond it are not stored. 0: none
};

/// A cache's counts since it was opened.
struct CacheCounts {
  std::int64_t read = 0;        ///< samples read from the disk
  std::int64_t computed = 0;    ///< samples computed
  std::int64_t damaged = 0;     ///< entries found truncated or changed; their samples are computed anew
  std::int64_t not_stored = 0;  ///< samples computed but not stored: beyond max_bytes, or not writable
  std::int64_t bytes = 0;       ///< on disk for these settings, written by any process
  std::string not_stored_because = {};  ///< reason for the last of these; empty if all were stored
};

/// The progress of `CachedDataset::build`.
struct CacheProgress {
  std::int64_t done = 0;   ///< samples that were processed, with any outcome
  std::int64_t total = 0;  ///< samples of the dataset
  std::int64_t added = 0;  ///< samples computed by this build
  double seconds = 0;      ///< since the build began
};

/// Options of `CachedDataset::build`. The order of the fields is API; new ones come last.
struct CacheBuildOptions {
  std::int64_t workers = 2;  ///< threads that compute samples
  /// Called by the building thread, every `interval` and once at the end.
  std::function<void(const CacheProgress&)> progress = {};
  std::chrono::milliseconds interval{500};
  /// True: lists samples that throw in the result; false: the first one ends the build.
  bool skip_failures = false;
};

/// A sample that could not be computed.
struct CacheFailure {
  std::int64_t index;
  std::string what;
};

/// The result of `CachedDataset::build`.
struct CacheBuildResult {
  std::int64_t present = 0;  ///< samples that were stored before, or by another process
  std::int64_t added = 0;    ///< samples that this build computed
  /// Samples not stored for lack of room: after one did not fit, no other was tried.
  std::int64_t skipped = 0;
  std::vector<CacheFailure> failures;  ///< sorted by index; empty unless `skip_failures`
};

/// Thrown for a sample that fails while a cache is built; the original exception is nested.
struct CacheBuildError : Error {
  CacheBuildError(const std::string& what, std::int64_t at_index) : Error(what), index(at_index) {}
  std::int64_t index;
};

/// Returns a progress callback that writes `cache: 120 of 1000 samples, 45 a second`: on a terminal one line
/// that is updated, elsewhere a line every `line_seconds` and at the end.
inline std::function<void(const CacheProgress&)> print_cache_progress(std::FILE* file = stderr,
                                                                      double line_seconds = 10) {
  return [file, line_seconds, next = line_seconds](const CacheProgress& progress) mutable {
    const double rate = progress.seconds > 0 ? static_cast<double>(progress.added) / progress.seconds : 0;
    const std::string line = message("cache: ", progress.done, " of ", progress.total, " samples, ",
                                     std::llround(rate), " a second");
    const bool is_last = progress.done == progress.total;
    if (detail::can_rewrite_line(file)) {
      detail::write_live_line(file, line);
      if (is_last) std::fputc('\n', file);
    } else if (is_last || progress.seconds >= next) {
      next = progress.seconds + line_seconds;
      std::fprintf(file, "%s\n", line.c_str());
    }
    std::fflush(file);
  };
}

}  // namespace looptorch
