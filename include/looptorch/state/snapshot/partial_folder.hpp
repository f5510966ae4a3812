// SPDX-License-Identifier: MIT
// Creates the folder into which a snapshot is written, under a temporary name next to the final one, and
// renames it once it is complete. Until then its manifest is locked, so that other processes do not take the
// folder for one that a killed process has left.
#pragma once

#include <looptorch/base/files/output_file.hpp>
#include <looptorch/state/snapshot/snapshot_error.hpp>
#include <looptorch/state/snapshot/snapshot_names.hpp>
#include <looptorch/state/snapshot/snapshot_remove.hpp>

#include <sys/stat.h>

#include <cerrno>
#include <filesystem>
#include <string_view>
#include <utility>

namespace looptorch::detail {

/// A folder that is being written. Without `publish` the destructor removes it.
class PartialFolder {
 public:
  /// `target` is the folder's final path. Its parent must exist. Throws FileError.
  explicit PartialFolder(std::filesystem::path target)
      : PartialFolder(std::move(target),
                      OutputFile(FileDescriptor(-1), {})) {  // so that a throw below is undone
    manifest_ = open();
  }
  PartialFolder(const PartialFolder&) = delete;
  PartialFolder& operator=(const PartialFolder&) = delete;
  ~PartialFolder() {
    if (!partial_.empty()) try_remove_snapshot(partial_);
  }

  [[nodiscard]] OutputFile create(std::string_view name) const {
    auto file = create_file(partial_ / name);
    if (file.get() < 0) throw_file_error(target_ / name, "cannot create", errno);
    return {std::move(file), target_ / name};
  }

  /// Moves a finished file into the folder, under this name. Both must be on one file system.
  void adopt(const std::filesystem::path& file, std::string_view name) const {
    if (::rename(file.c_str(), (partial_ / name).c_str()) != 0)
      throw_file_error(target_ / name, "cannot create", errno);
  }

  /// Writes the manifest and renames the folder to its final name, replacing the folder that had that name.
  /// `is_sound` decides whether the replaced folder is a snapshot that must not be lost. Throws FileError and
  /// SnapshotError; a folder that is sound then stays in place.
  template <class IsSound>
  void publish(std::string_view manifest, IsSound is_sound);

 private:
  PartialFolder(std::filesystem::path target, OutputFile manifest)
      : target_(std::move(target)), manifest_(std::move(manifest)) {}

  OutputFile open();
  template <class IsSound>
  std::filesystem::path rename_over(IsSound is_sound);

  std::filesystem::path target_, partial_;
  OutputFile manifest_;
};

/// Creates the folder and locks its manifest. If another process sweeps the folder just before it is locked,
/// tries the next name.
inline OutputFile PartialFolder::open() {
  for (;;) {
    partial_ = sibling_of(target_, kPartial);
    if (::mkdir(partial_.c_str(), 0777) != 0) {
      if (errno == EEXIST) continue;
      throw_file_error(target_, "cannot create", errno);
    }
    auto manifest = create_file(partial_ / kManifestFile);
    const int reason = errno;
    if (manifest.get() >= 0 && lock_new_file(manifest, partial_ / kManifestFile))
      return {std::move(manifest), target_ / kManifestFile};
    if (manifest.get() >= 0 || reason == ENOENT) continue;
    ::rmdir(partial_.c_str());
    throw_file_error(target_ / kManifestFile, "cannot create", reason);
  }
}

template <class IsSound>
void PartialFolder::publish(std::string_view manifest, IsSound is_sound) {
  manifest_.write(manifest);
  manifest_.sync();
  sync_folder(partial_);
  const auto replaced = rename_over(is_sound);
  partial_.clear();
  sync_folder(folder_of(target_));
  if (!replaced.empty()) try_remove_snapshot(replaced);
}

/// Gives the folder its final name. If another folder had that name, moves it aside and returns its new path;
/// else returns an empty one.
template <class IsSound>
std::filesystem::path PartialFolder::rename_over(IsSound is_sound) {
  if (::rename(partial_.c_str(), target_.c_str()) == 0) return {};
  if (errno != ENOTEMPTY && errno != EEXIST) throw_file_error(target_, "cannot create", errno);
  expect_only_snapshot(open_folder(target_), target_);
  if (::renameat2(AT_FDCWD, partial_.c_str(), AT_FDCWD, target_.c_str(), RENAME_EXCHANGE) == 0)
    return partial_;
  if (errno != EINVAL && errno != ENOSYS && errno != ENOTSUP) {
    throw_file_error(target_, "cannot replace", errno);
  }
  if (is_sound(target_)) {
    throw SnapshotError(
        target_.string() +
        ": is there already, and this file system cannot replace a folder in one step: remove it, "
        "or write into another folder");
  }
  const auto damaged = sibling_of(target_, kDeleted);
  if (::rename(target_.c_str(), damaged.c_str()) != 0) throw_file_error(target_, "cannot replace", errno);
  if (::rename(partial_.c_str(), target_.c_str()) != 0) {
    const int error = errno;
    (void)::rename(damaged.c_str(), target_.c_str());  // which keeps its name
    throw_file_error(target_, "cannot replace", error);
  }
  return damaged;
}

}  // namespace looptorch::detail
