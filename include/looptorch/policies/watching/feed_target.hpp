// SPDX-License-Identifier: MIT
// Defines where LogMetrics sends a fit's numbers. RunFiles holds the metric files and the page; FeedTarget
// adds the log that writes them. A Trainer's next fit takes over the RunFiles, so that it need not read the
// files of the run so far.
#pragma once

#include <looptorch/policies/watching/known_sounds.hpp>
#include <looptorch/report/metric_files.hpp>
#include <looptorch/report/metric_log.hpp>
#include <looptorch/report/run_report.hpp>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <utility>

namespace looptorch::detail {

/// Selects a run's files, and where the run stands.
struct RunFilesOptions {
  std::filesystem::path folder;
  std::int64_t step = 0;  ///< Rows of later steps are dropped; 0 starts the files again.
  report::MetricFormats formats = {};
  bool page = true;
  double page_seconds = 10;  ///< The page is rewritten at most so often.
};

/// A run's files. The log's thread uses them while there is one.
struct RunFiles {
  std::shared_ptr<report::MetricFiles> metrics;  ///< Null: none yet.
  std::shared_ptr<report::RunReport> page;       ///< Null: none is written.
  std::shared_ptr<KnownSounds> sounds = std::make_shared<KnownSounds>();
};

/// Returns `before`, the files that the Trainer's last fit has closed, if this fit continues them. Otherwise
/// reads the folder's files, which takes time in proportion to the run so far. Throws FileError.
[[nodiscard]] inline RunFiles open_run_files(RunFiles before, const RunFilesOptions& options,
                                             report::PageHead head) {
  const auto& [folder, step, formats, page, page_seconds] = options;
  if (before.metrics && static_cast<bool>(before.page) == page &&
      before.metrics->continue_in(folder, step, formats)) {
    if (page) before.page->begin_again(std::move(head));
    return before;
  }
  RunFiles files;
  files.metrics = std::make_shared<report::MetricFiles>(folder, step, formats);
  if (page) files.page = std::make_shared<report::RunReport>(folder, std::move(head), page_seconds);
  if (page && step > 0) files.page->restore_examples(step);
  return files;
}

/// The log that gets a fit's numbers, and when.
struct FeedTarget {
  RunFiles files;
  std::unique_ptr<report::MetricLog> log;
  double flush_seconds = 1;  ///< Between two hand-overs.
};

}  // namespace looptorch::detail
