// SPDX-License-Identifier: MIT
// Takes a run's snapshots (take_snapshot.hpp) and resumes a fit from one (resume.hpp); read this header
// first. state/snapshot/ reads and writes the files. Only policies that declare `takes_snapshots`, such as
// SnapshotEvery, include this header, so other programs do not compile it.
#pragma once

#include <looptorch/base/device/random_states.hpp>
#include <looptorch/base/error.hpp>
#include <looptorch/data/loader/feed.hpp>
#include <looptorch/loop/compose/deferred_code.hpp>
#include <looptorch/loop/compose/hooks.hpp>
#include <looptorch/loop/context.hpp>
#include <looptorch/loop/fit.hpp>
#include <looptorch/loop/resume_report.hpp>
#include <looptorch/loop/run.hpp>
#include <looptorch/resume/differences.hpp>
#include <looptorch/resume/resume.hpp>
#include <looptorch/resume/saved_feed.hpp>
#include <looptorch/resume/take_snapshot.hpp>
#include <looptorch/state/snapshot/snapshot_contents.hpp>
#include <looptorch/state/snapshot/snapshot_folder.hpp>

#include <c10/util/Exception.h>

#include <filesystem>
#include <optional>
#include <string>
#include <utility>

namespace looptorch::detail {

/// A fit that continues from a snapshot.
class ResumedFit {
 public:
  template <class Engine>
  ResumedFit(const Resumption<Engine>& resumption, ResumeReport report)
      : report_(std::move(report)), random_(resumption.random()) {}

  /// Restores the random generators, from which policies may have drawn, and stops a run that had been
  /// stopped. Call it after policies have begun.
  void begin(Run& run) const {
    random_.apply();
    if (report_.stopped) run.stop(*report_.stopped);
  }
  [[nodiscard]] const ResumeReport& report() const { return report_; }

 private:
  ResumeReport report_;
  RandomStates random_;
};

/// Prints warnings of rejected snapshots, of contents that were not loaded, and of settings that differ.
inline void warn_about(const ResumeReport& report) {
  for (const std::string& why : report.rejected) TORCH_WARN("looptorch: rejected ", why);
  if (!report.differences.empty())
    TORCH_WARN("looptorch: ", report.snapshot.string(),
               " was loaded in part: ", joined(report.differences, "; "));
  if (!report.changed.empty())
    TORCH_WARN("looptorch: resumes from ", report.snapshot.string(),
               " with other settings: ", joined(report.changed, "; "));
}

/// Returns the snapshot that was already chosen and read, else reads it.
[[nodiscard]] inline NewestSnapshot chosen_snapshot(const ResumeFrom& from) {
  const NewestSnapshot* const chosen = from.chosen();
  return chosen ? NewestSnapshot{.path = chosen->path, .held = chosen->held} : find_snapshot(from.path());
}

/// The functions that an engine calls if a listed policy takes snapshots (loop/compose/deferred_code.hpp).
template <class Engine>
struct SnapshotCode {
  using LastFeed = SavedFeed;

  [[nodiscard]] static SnapshotContents take(Engine& engine, const std::filesystem::path& folder,
                                             const SavedFeed& feed = {}) {
    return take_snapshot(engine, feed, folder);
  }

  /// Restores contents that came from no file.
  static ResumeReport restore(Engine& engine, const SnapshotContents& contents, bool strict,
                              bool resume_changed) {
    const ResumeMode mode = resume_mode_of(strict, resume_changed);
    engine.prepare();
    const auto resumption = load_contents(engine, contents, {}, mode, "the snapshot");
    resumption.random().apply();
    ResumeReport report{.step = contents.step, .stopped = resumption.stopped()};
    report_differences(report, resumption.differences(), mode);
    return report;
  }

  /// Loads the snapshot that a fit's options name; returns nothing without one. A loader then reads the run's
  /// original windows, if it has the same data. `last` describes the previous fit's range, and then this
  /// one's.
  [[nodiscard]] static std::optional<ResumedFit> resume(Engine& engine, const FitOptions& options,
                                                        const Feed& feed, SavedFeed& last) {
    std::optional<ResumedFit> resumed;
    if (feed.source) restore_windows(last, *feed.source);
    if (!options.resume.empty()) resumed = resume_from_snapshot(engine, options, feed);
    last = describe_feed(feed);
    if (engine.ranks()) last.log = nullptr;  // the other ranks' streams are at other positions
    return resumed;
  }

 private:
  static ResumedFit resume_from_snapshot(Engine& engine, const FitOptions& options, const Feed& feed) {
    const NewestSnapshot snapshot = chosen_snapshot(options.resume);
    const SnapshotContents contents = snapshot.take();
    ResumeReport report{.snapshot = snapshot.path, .step = contents.step};
    for (const RejectedSnapshot& each : snapshot.rejected) report.rejected.push_back(each.reason);
    engine.stack().template run<before_resume_hook>(ResumeContext{engine.run(), report.step});
    const ResumeMode mode = resume_mode_of(options.strict, options.resume_changed);
    const auto resumption = load_contents(engine, contents, feed, mode, report.snapshot.string());
    report.stopped = resumption.stopped();
    report_differences(report, resumption.differences(), mode);
    warn_about(report);
    return {resumption, std::move(report)};
  }
};

}  // namespace looptorch::detail
