// SPDX-License-Identifier: MIT
// Defines `NewestSnapshot`, the newest intact snapshot of a folder, and `ResumeFrom`, the type of
// FitOptions::resume: the path of a snapshot, or a NewestSnapshot. A NewestSnapshot holds the contents that
// were verified, so that the fit need not read them again.
#pragma once

#include <looptorch/state/snapshot/snapshot_contents.hpp>

#include <concepts>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace looptorch {

/// A snapshot that cannot be used, and why.
struct RejectedSnapshot {
  std::filesystem::path path;
  std::string reason;
};

/// The newest intact snapshot. It is read once: the verified contents are held until the fit takes them,
/// whatever happens to the files meanwhile. Copies share the contents.
struct NewestSnapshot {
  /// The snapshot's folder; empty if there is none.
  std::filesystem::path path = {};
  /// Newer snapshots that cannot be used, the newest first.
  std::vector<RejectedSnapshot> rejected = {};
  /// The contents; null for a snapshot that was not read.
  std::shared_ptr<std::optional<SnapshotContents>> held = {};

  /// Returns the contents and releases them. If none are held, reads the snapshot, and throws what
  /// read_snapshot throws. Defined in snapshot_folder.hpp, which callers include.
  [[nodiscard]] SnapshotContents take() const;
  /// Frees the contents: a fit reads them again.
  void release() const {
    if (held) held->reset();
  }

  /// Returns lines for a log: each rejected snapshot with the reason, and a line if there is none to resume
  /// from. FitOptions::on_resumed reports the resume itself.
  [[nodiscard]] std::string describe() const {
    std::string text;
    for (const auto& [snapshot, reason] : rejected) text += "rejected " + reason + "\n";
    return text + (path.empty() ? "no snapshot to resume from: starts a new run\n" : "");
  }
  /// Returns "; REASON" for each rejected snapshot, to end an error message with.
  [[nodiscard]] std::string reasons() const {
    std::string text;
    for (const auto& [snapshot, reason] : rejected) text += "; " + reason;
    return text;
  }
};

/// The snapshot from which a fit resumes: the path of one, the path of a folder whose newest intact one is
/// taken, or a NewestSnapshot. An empty path starts a new run.
class ResumeFrom {
 public:
  ResumeFrom() = default;
  template <std::convertible_to<std::filesystem::path> Path>
  ResumeFrom(Path&& path) : snapshot_{.path = std::forward<Path>(path)} {}
  ResumeFrom(NewestSnapshot chosen) : snapshot_(std::move(chosen)) {}

  [[nodiscard]] bool empty() const { return snapshot_.path.empty(); }
  [[nodiscard]] const std::filesystem::path& path() const { return snapshot_.path; }
  /// Returns the snapshot that was already read; null for a path alone.
  [[nodiscard]] const NewestSnapshot* chosen() const { return snapshot_.held ? &snapshot_ : nullptr; }

 private:
  NewestSnapshot snapshot_;
};

}  // namespace looptorch
