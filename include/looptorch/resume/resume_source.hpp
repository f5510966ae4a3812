// SPDX-License-Identifier: MIT
// Finds the snapshot that a fit continues from: one that is named, or the newest sound one in a folder of
// them.
#pragma once

#include <looptorch/loop/resume_report.hpp>
#include <looptorch/state/snapshot/snapshot_folder.hpp>
#include <looptorch/state/snapshot/snapshot_names.hpp>

#include <filesystem>
#include <string>
#include <vector>

namespace looptorch::detail {

/// A snapshot's contents and where they were found.
struct FoundSnapshot {
  ResumeReport report;
  SnapshotContents contents;
};

/// Reads a snapshot, or the newest sound one in a folder of them. Throws SnapshotError that describes what
/// was found instead.
[[nodiscard]] inline FoundSnapshot find_snapshot(const std::filesystem::path& path) {
  FoundSnapshot found;
  std::vector<ListedSnapshot> listed;
  const bool named = is_snapshot(path);
  if (named)
    listed.push_back({0, path.has_filename() ? path : path.parent_path()});
  else
    listed = list_snapshots(path);
  for (auto snapshot = listed.rbegin(); snapshot != listed.rend(); ++snapshot) {
    try {
      found.contents = read_snapshot(snapshot->path);
      found.report.snapshot = snapshot->path;
      found.report.step = found.contents.step;
      return found;
    } catch (const SnapshotError& error) {
      if (named) throw;
      found.report.passed_over.emplace_back(error.what());
    }
  }
  std::string text = path.string() + ": there is no snapshot to go on from";
  for (const std::string& why : found.report.passed_over) text += "; " + why;
  throw SnapshotError(text);
}

}  // namespace looptorch::detail
