// SPDX-License-Identifier: MIT
// Runs SnapshotEvery's work during a fit: begins snapshots in the background, prunes old ones, and watches
// for signals.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/files/folder_lock.hpp>
#include <looptorch/base/process/signals.hpp>
#include <looptorch/base/process/terminal.hpp>
#include <looptorch/base/what_of.hpp>
#include <looptorch/state/snapshot/snapshot_folder.hpp>
#include <looptorch/state/snapshot/snapshot_writer.hpp>

#include <c10/util/Exception.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <utility>

namespace looptorch::detail {

/// Throws UsageError if the folder has intact snapshots of later steps than `step`, which are another run's.
inline void require_no_later_snapshots(const std::filesystem::path& folder, std::int64_t step) {
  for (const ListedSnapshot& snapshot : list_snapshots(folder))
    if (snapshot.step > step && is_sound(snapshot.path))
      throw UsageError(message(
          "SnapshotEvery is to write into ", folder.string(), " from step ", step, " on, and there is ",
          snapshot.path.filename().string(),
          " already: resume from it (--resume of programs, `resume` of fit), or choose another folder"));
}

/// Creates the folder and locks it. Throws SnapshotError if that fails, and UsageError for a folder that
/// another run has locked and for intact snapshots of later steps than `step`.
[[nodiscard]] inline FolderLock lock_snapshot_folder(const std::filesystem::path& folder, std::int64_t step) {
  as_snapshot_errors([&] { make_folders(folder); });
  FolderLock lock(folder);
  require_no_later_snapshots(folder, step);
  return lock;
}

/// Selects the snapshots that stay in the folder in addition to the best.
struct SnapshotsToKeep {
  std::size_t newest = 0;  ///< Number of the newest that stay; 0: all.
  std::int64_t every = 0;  ///< Those whose step is a multiple of this also stay; 0: none.
};

/// SnapshotEvery's work on one folder, from a fit's beginning to its end. Called by the training thread; only
/// `prune` runs on the writing thread.
class SnapshotWork {
 public:
  /// Holds `lock` as long as this lives.
  SnapshotWork(std::filesystem::path folder, FolderLock lock, SnapshotsToKeep keep, bool watch_signals)
      : keep_(keep),
        lock_(std::move(lock)),
        writer_(std::move(folder), {.on_written = [this](const auto&) { prune(); }}) {
    if (watch_signals) watch_.emplace();
  }
  SnapshotWork(const SnapshotWork&) = delete;
  SnapshotWork& operator=(const SnapshotWork&) = delete;

  /// Waits for the previous snapshot, then begins to write this one. `best` are the steps of the snapshots
  /// that stay. Throws the errors of both, and what require_own_folder throws.
  void begin(const SnapshotContents& contents, std::set<std::int64_t> best) {
    wait();
    require_own_folder(contents.step);
    best_ = std::move(best);
    step_ = contents.step;
    (void)writer_.begin(contents);
  }
  void poll() {
    if (writer_.poll()) print_prune_error();
  }
  void wait() {
    if (writer_.wait()) print_prune_error();
  }

  /// Returns the signal that was received, or 0.
  [[nodiscard]] int signal() const { return watch_ ? SignalWatch::received() : 0; }
  int end_watch() { return watch_ ? watch_->close() : 0; }

 private:
  /// Locks the folder anew if it was removed or replaced: another run may have begun there. Throws what
  /// lock_snapshot_folder throws.
  void require_own_folder(std::int64_t step) {
    if (!lock_.is_of(writer_.folder())) lock_ = lock_snapshot_folder(writer_.folder(), step);
  }

  /// Removes old snapshots. Runs on the writing thread.
  void prune() {
    if (keep_.newest == 0) return;
    try {
      prune_snapshots(writer_.folder(), keep_.newest, spared(), step_);
    } catch (...) {  // the snapshot is written: this must not count as its failure
      prune_error_ = what_of(std::current_exception());
    }
  }

  [[nodiscard]] std::set<std::int64_t> spared() const {
    auto spared = best_;
    if (keep_.every > 0)
      for (const ListedSnapshot& snapshot : list_snapshots(writer_.folder()))
        if (snapshot.step % keep_.every == 0) spared.insert(snapshot.step);
    return spared;
  }

  void print_prune_error() {
    const std::string error = std::exchange(prune_error_, {});
    if (error.empty()) return;
    std::fputs(clearing_code(stderr), stderr);
    TORCH_WARN("looptorch: an old snapshot stays: ", error);
  }

  SnapshotsToKeep keep_;
  FolderLock lock_;
  std::set<std::int64_t> best_;  // steps of snapshots that stay
  std::int64_t step_ = 0;        // the snapshot being written; later ones in the folder are damaged
  std::string prune_error_;
  std::optional<SignalWatch> watch_;
  SnapshotWriter writer_;  // last, so that it ends before the other members are destroyed
};

/// Locks the folder, and removes what killed processes left there. Throws what lock_snapshot_folder throws.
[[nodiscard]] inline FolderLock prepare_snapshot_folder(const std::filesystem::path& folder,
                                                        std::int64_t step) {
  FolderLock lock = lock_snapshot_folder(folder, step);
  sweep_unfinished(folder);
  remove_left_shards(folder);
  return lock;
}

[[nodiscard]] inline bool has_snapshot(const std::filesystem::path& folder, std::int64_t step) {
  for (const ListedSnapshot& snapshot : list_snapshots(folder))
    if (snapshot.step == step) return true;
  return false;
}

}  // namespace looptorch::detail
