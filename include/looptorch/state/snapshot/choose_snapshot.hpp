// SPDX-License-Identifier: MIT
// Finds and reads the snapshot that a program's flag `--resume auto|DIR` asks for. TrainingOptions calls it
// before a run begins, and the fit takes the result as FitOptions::resume.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/state/snapshot/snapshot_folder.hpp>

#include <filesystem>
#include <string>
#include <system_error>

namespace looptorch {

/// True for a snapshot in that folder, whichever path names the folder; false for an empty path.
[[nodiscard]] inline bool snapshot_lies_in(const std::filesystem::path& snapshot,
                                           const std::filesystem::path& folder) {
  std::error_code ignored;
  return !snapshot.empty() && std::filesystem::equivalent(snapshot / "..", folder, ignored);
}

/// Reads the snapshot that `resume` names, for a run with its own snapshots in `folder`. An empty path starts
/// a new run. Hand the result itself to FitOptions::resume: its path alone would be read again.
///
///   ""      starts a new run
///   "auto"  the newest intact snapshot in `folder`, if there is one
///   else    that snapshot, or the newest intact one in that folder
///
/// Throws UsageError if a run that starts anew, or resumes from elsewhere, finds another run's snapshots in
/// `folder` and would mix its own with them. Throws SnapshotError for a path that holds no intact snapshot,
/// and for a folder that cannot be read.
[[nodiscard]] inline NewestSnapshot choose_snapshot(const std::string& resume,
                                                    const std::filesystem::path& folder) {
  if (resume.empty()) {
    if (list_snapshots(folder).empty()) return {};
    throw UsageError(folder.string() + " holds a run: go on with --resume auto, or choose another folder");
  }
  if (resume == "auto") return find_newest_snapshot(folder);
  auto named = find_snapshot(resume);
  if (!list_snapshots(folder).empty() && !snapshot_lies_in(named.path, folder))
    throw UsageError(folder.string() + " holds another run than " + named.path.string() +
                     ": go on with --resume auto, or choose another folder");
  return named;
}

}  // namespace looptorch
