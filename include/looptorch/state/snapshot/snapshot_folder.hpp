// SPDX-License-Identifier: MIT
// Manages a folder of snapshots: finds the newest intact one, removes what killed processes have left, and
// prunes old ones. Finds the newest by listing the folder; no file points to it. Never touches other files
// and folders in it.
#pragma once

#include <looptorch/state/snapshot/newest_snapshot.hpp>
#include <looptorch/state/snapshot/snapshot.hpp>
#include <looptorch/state/snapshot/snapshot_names.hpp>
#include <looptorch/state/snapshot/snapshot_remove.hpp>

#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace looptorch {

/// A snapshot as listed by its name. Only reading it shows whether it is intact.
struct ListedSnapshot {
  std::int64_t step = 0;
  std::filesystem::path path;
};

/// Returns the snapshots by step, the oldest first; none if the folder does not exist. Throws SnapshotError
/// if it cannot be read.
[[nodiscard]] std::vector<ListedSnapshot> list_snapshots(const std::filesystem::path& folder);

/// Reads the snapshot of the highest step that read_snapshot accepts. Throws SnapshotError if the folder
/// cannot be read.
[[nodiscard]] NewestSnapshot find_newest_snapshot(const std::filesystem::path& folder);

/// Reads the snapshot at `path`, or the newest intact one if `path` is a folder of snapshots. Throws
/// SnapshotError if there is none; its message says that `path` holds no `sought`.
[[nodiscard]] NewestSnapshot find_snapshot(const std::filesystem::path& path,
                                           const std::string& sought = "snapshot to resume from");

/// Removes what processes that no longer run have begun to write or to delete, and returns those paths.
/// Leaves alone what a living process is writing, and any folder that holds other files than a snapshot has.
/// Throws SnapshotError if the folder cannot be read.
std::vector<std::filesystem::path> sweep_unfinished(const std::filesystem::path& folder);

/// Renames a snapshot and then deletes it, so that its remains are never taken for a snapshot. Throws
/// SnapshotError, for example if it holds other files than a snapshot has; then it is unchanged.
void remove_snapshot(const std::filesystem::path& snapshot);

/// Removes all snapshots but the `keep` newest and those of the steps in `spared`, and returns the paths that
/// it removed. A snapshot with a wrong manifest or size is neither counted nor removed. The same holds for
/// steps after `newest`: a run that resumed from before a damaged snapshot passes its own step here, since
/// only reading a whole snapshot would show the damage. Throws SnapshotError.
std::vector<std::filesystem::path> prune_snapshots(
    const std::filesystem::path& folder, std::size_t keep, const std::set<std::int64_t>& spared = {},
    std::int64_t newest = std::numeric_limits<std::int64_t>::max());

namespace detail {

/// Returns the names in the folder; none if it does not exist.
[[nodiscard]] inline std::vector<std::string> names_in_folder(const std::filesystem::path& folder) {
  const FileDescriptor handle(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (handle.get() < 0 && errno == ENOENT) return {};
  auto names = handle.get() < 0 ? std::nullopt : names_in(handle);
  if (!names)
    throw_snapshot_error(folder, "cannot read the folder: ", std::generic_category().message(errno));
  return *std::move(names);
}

/// True if no process writes to the folder: its lock is free, and it has not been renamed in the meantime.
[[nodiscard]] inline bool is_left_over(const FileDescriptor& folder, const FileDescriptor& manifest,
                                       const std::filesystem::path& path) {
  struct stat open {};
  struct stat named {};
  const auto lock = [&] { return ::flock(manifest.get(), LOCK_EX | LOCK_NB); };
  return retried(lock) == 0 && ::fstat(folder.get(), &open) == 0 && ::lstat(path.c_str(), &named) == 0 &&
         open.st_ino == named.st_ino && open.st_dev == named.st_dev;
}

inline bool sweep(const std::filesystem::path& path) {
  const auto folder = open_folder(path);
  if (folder.get() < 0) return false;
  const FileDescriptor manifest(
      ::openat(folder.get(), std::string(kManifestFile).c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC));
  if (manifest.get() < 0) return errno == ENOENT && ::rmdir(path.c_str()) == 0;
  return is_left_over(folder, manifest, path) && remove_open_snapshot(folder, path);
}

/// Reads a snapshot, and returns it with its contents.
[[nodiscard]] inline NewestSnapshot held_snapshot(std::filesystem::path path) {
  auto contents = std::make_shared<std::optional<SnapshotContents>>(read_snapshot(path));
  return {.path = std::move(path), .held = std::move(contents)};
}

/// True if all files exist and have their sizes.
[[nodiscard]] inline bool has_all_files(const std::filesystem::path& snapshot) {
  try {
    as_snapshot_errors([&] { SnapshotReading(snapshot).check_sizes(); });
    return true;
  } catch (const SnapshotError&) {
    return false;
  }
}

}  // namespace detail

inline std::vector<ListedSnapshot> list_snapshots(const std::filesystem::path& folder) {
  std::vector<ListedSnapshot> found;
  for (const auto& name : detail::names_in_folder(folder)) {
    if (const auto step = detail::step_of(name)) found.push_back({*step, folder / name});
  }
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.step < b.step; });
  return found;
}

inline NewestSnapshot find_newest_snapshot(const std::filesystem::path& folder) {
  NewestSnapshot newest;
  const auto listed = list_snapshots(folder);
  for (auto snapshot = listed.rbegin(); snapshot != listed.rend(); ++snapshot) {
    try {
      NewestSnapshot intact = detail::held_snapshot(snapshot->path);
      intact.rejected = std::move(newest.rejected);
      return intact;
    } catch (const SnapshotError& error) {
      newest.rejected.push_back({snapshot->path, error.what()});
    }
  }
  return newest;
}

inline NewestSnapshot find_snapshot(const std::filesystem::path& path, const std::string& sought) {
  std::error_code ignored;
  if (std::filesystem::is_regular_file(path, ignored) || path.extension() == ".pt")
    throw SnapshotError(
        path.string() +
        ": is no snapshot, which is a folder, nor a folder of them. A checkpoint of PyTorch's is weights to begin "
        "with: programs with --weights FILE take it so");
  if (detail::is_snapshot(path))
    return detail::held_snapshot(path.has_filename() ? path : path.parent_path());
  NewestSnapshot newest = find_newest_snapshot(path);
  if (newest.path.empty()) throw SnapshotError(path.string() + ": holds no " + sought + newest.reasons());
  return newest;
}

inline SnapshotContents NewestSnapshot::take() const {
  if (!held || !*held) return read_snapshot(path);
  SnapshotContents contents = std::move(**held);
  release();
  return contents;
}

inline std::vector<std::filesystem::path> sweep_unfinished(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> swept;
  for (const auto& name : detail::names_in_folder(folder)) {
    if (detail::is_unfinished_name(name) && detail::sweep(folder / name)) swept.push_back(folder / name);
  }
  return swept;
}

inline void remove_snapshot(const std::filesystem::path& snapshot) {
  detail::as_snapshot_errors([&] {
    const auto folder = detail::open_folder(snapshot);
    detail::expect_only_snapshot(folder, snapshot);
    const auto away = detail::sibling_of(snapshot, detail::kDeleted);
    if (::rename(snapshot.c_str(), away.c_str()) != 0)
      detail::throw_file_error(snapshot, "cannot remove", errno);
    detail::sync_folder(detail::folder_of(snapshot));
    if (!detail::remove_open_snapshot(folder, away)) {
      detail::throw_file_error(away, "cannot remove all of it", errno);
    }
  });
}

inline std::vector<std::filesystem::path> prune_snapshots(const std::filesystem::path& folder,
                                                          std::size_t keep,
                                                          const std::set<std::int64_t>& spared,
                                                          std::int64_t newest) {
  std::vector<std::filesystem::path> removed;
  std::size_t kept = 0;
  const auto listed = list_snapshots(folder);
  for (auto snapshot = listed.rbegin(); snapshot != listed.rend(); ++snapshot) {
    // With `keep_every` thousands may be spared: those that need not be counted are not opened.
    const bool stays = snapshot->step > newest || (kept >= keep && spared.count(snapshot->step) > 0);
    if (stays || !detail::has_all_files(snapshot->path) || kept++ < keep) continue;
    remove_snapshot(snapshot->path);
    removed.push_back(snapshot->path);
  }
  return removed;
}

}  // namespace looptorch
