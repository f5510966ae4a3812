// SPDX-License-Identifier: MIT
// A snapshot's folder while it is written, under a name of its own beside the final one. Its manifest is the
// first file that is made and the last that is filled, and is locked in between: so others can tell what a
// killed process has left from what is being written.
#pragma once

#include <looptorch/base/files/output_file.hpp>
#include <looptorch/state/snapshot/snapshot_error.hpp>
#include <looptorch/state/snapshot/snapshot_names.hpp>
#include <looptorch/state/snapshot/snapshot_remove.hpp>

#include <sys/file.h>
#include <sys/stat.h>

#include <cerrno>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>

namespace looptorch::detail {

/// A folder in the making. Without `publish` the destructor removes it.
class PartialFolder {
 public:
  /// `target`: what it is to be called; its folder must be there. Throws FileError.
  explicit PartialFolder(std::filesystem::path target)
      : PartialFolder(std::move(target), OutputFile(FileDescriptor(-1), {})) {  // what throws here is undone
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

  /// Writes the manifest, after which the folder takes its final name, in place of what had it before.
  /// `is_sound`: whether what has the name is a snapshot that must not be lost. Throws FileError and
  /// SnapshotError; what was there stays.
  template <class IsSound>
  void publish(std::string_view manifest, IsSound is_sound);

 private:
  PartialFolder(std::filesystem::path target, OutputFile manifest)
      : target_(std::move(target)), manifest_(std::move(manifest)) {}

  OutputFile open();
  bool lock(const FileDescriptor& manifest) const;
  template <class IsSound>
  std::filesystem::path rename_over(IsSound is_sound);

  std::filesystem::path target_, partial_;
  OutputFile manifest_;
};

/// Another process may sweep what looks left over just before it is locked: then the next name is tried.
inline OutputFile PartialFolder::open() {
  for (;;) {
    partial_ = sibling_of(target_, kPartial);
    if (::mkdir(partial_.c_str(), 0777) != 0) {
      if (errno == EEXIST) continue;
      throw_file_error(target_, "cannot create", errno);
    }
    auto manifest = create_file(partial_ / kManifestFile);
    const int reason = errno;
    if (manifest.get() >= 0 && lock(manifest)) return {std::move(manifest), target_ / kManifestFile};
    if (manifest.get() >= 0 || reason == ENOENT) continue;
    ::rmdir(partial_.c_str());
    throw_file_error(target_ / kManifestFile, "cannot create", reason);
  }
}

/// True as well where the file system has no locks: there no other process sweeps either. Where no link is
/// counted the file is asked for by its name, since some file systems count none.
inline bool PartialFolder::lock(const FileDescriptor& manifest) const {
  const auto lock = [&] { return ::flock(manifest.get(), LOCK_EX | LOCK_NB); };
  if (retried(lock) != 0 && errno == EWOULDBLOCK) return false;
  struct stat status {};
  return ::fstat(manifest.get(), &status) == 0 &&
         (status.st_nlink > 0 || ::stat((partial_ / kManifestFile).c_str(), &status) == 0);
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

/// Where what had the name is now; empty if nothing had.
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
  if (::rename(target_.c_str(), damaged.c_str()) != 0 || ::rename(partial_.c_str(), target_.c_str()) != 0) {
    throw_file_error(target_, "cannot replace", errno);
  }
  return damaged;
}

}  // namespace looptorch::detail
