// SPDX-License-Identifier: MIT
// All that a run needs to take snapshots and to go on from them. The header of a policy that declares
// `takes_snapshots` includes it, as that of SnapshotEvery does.
#pragma once

#include <looptorch/data/loader/regrouping.hpp>
#include <looptorch/loop/compose/included_code.hpp>
#include <looptorch/loop/fit.hpp>
#include <looptorch/loop/resume/differences.hpp>
#include <looptorch/loop/resume/resume.hpp>
#include <looptorch/loop/resume/saved_feed.hpp>
#include <looptorch/loop/resume/staged_feed.hpp>
#include <looptorch/loop/resume/take_snapshot.hpp>
#include <looptorch/loop/resume_report.hpp>
#include <looptorch/state/snapshot/snapshot_contents.hpp>

#include <filesystem>
#include <optional>

namespace looptorch::detail {

template <class Engine>
struct SnapshotCode {
  [[nodiscard]] static SnapshotContents take(Engine& engine, const SavedFeed& feed,
                                             const std::filesystem::path& folder) {
    return snapshot_contents(engine, feed, folder);
  }

  /// Takes contents over that came from no file.
  static ResumeReport restore(Engine& engine, const SnapshotContents& contents, bool strict,
                              bool resume_changed) {
    const Tolerance tolerance = tolerance_of(strict, resume_changed);
    engine.prepare();
    const auto taken = resume_from(engine, contents, {}, nullptr, tolerance, "the snapshot");
    taken.random().apply();
    ResumeReport report{.step = contents.step};
    add_to(report, taken.differences(), tolerance);
    return report;
  }

  /// Takes over the snapshot that a fit's options name; returns nothing without one.
  template <class Batches>
  [[nodiscard]] static std::optional<Resumed<Engine>> resume(Engine& engine, const FitOptions& options,
                                                             const Batches& batches) {
    if (options.resume.empty()) return std::nullopt;
    return std::make_optional<Resumed<Engine>>(engine, options, batches.identity(), batches.regroupable());
  }

  /// Lets a loader read the windows with which the run began, if it has the same data.
  static void keep_windows(const SavedFeed& began, Regroupable& batches) {
    detail::keep_windows(began, batches);
  }
};

}  // namespace looptorch::detail
