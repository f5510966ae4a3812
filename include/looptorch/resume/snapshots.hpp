// SPDX-License-Identifier: MIT
// All that a run needs to take snapshots and to go on from them. The header of a policy that declares
// `takes_snapshots` includes it, as that of SnapshotEvery does.
#pragma once

#include <looptorch/loop/compose/included_code.hpp>
#include <looptorch/loop/feed.hpp>
#include <looptorch/loop/fit.hpp>
#include <looptorch/loop/resume_report.hpp>
#include <looptorch/resume/differences.hpp>
#include <looptorch/resume/resume.hpp>
#include <looptorch/resume/saved_feed.hpp>
#include <looptorch/resume/staged_feed.hpp>
#include <looptorch/resume/take_snapshot.hpp>
#include <looptorch/state/snapshot/snapshot_contents.hpp>

#include <filesystem>
#include <optional>

namespace looptorch::detail {

template <class Engine>
struct SnapshotCode {
  using LastFeed = SavedFeed;

  [[nodiscard]] static SnapshotContents take(Engine& engine, const std::filesystem::path& folder,
                                             const SavedFeed& feed = {}) {
    return snapshot_contents(engine, feed, folder);
  }

  /// Takes contents over that came from no file.
  static ResumeReport restore(Engine& engine, const SnapshotContents& contents, bool strict,
                              bool resume_changed) {
    const Tolerance tolerance = tolerance_of(strict, resume_changed);
    engine.prepare();
    const auto taken = resume_from(engine, contents, {}, tolerance, "the snapshot");
    taken.random().apply();
    ResumeReport report{.step = contents.step};
    add_to(report, taken.differences(), tolerance);
    return report;
  }

  /// Takes over the snapshot that a fit's options name; returns nothing without one. A loader then reads the
  /// windows with which the run began, if it has the same data. `last` describes the range of the fit before,
  /// and then of this one.
  [[nodiscard]] static std::optional<Resumed<Engine>> resume(Engine& engine, const FitOptions& options,
                                                             const Feed& feed, SavedFeed& last) {
    std::optional<Resumed<Engine>> resumed;
    if (feed.source) keep_windows(last, *feed.source);
    if (!options.resume.empty()) resumed.emplace(engine, options, feed);
    last = saved_feed(feed);
    return resumed;
  }
};

}  // namespace looptorch::detail
