// SPDX-License-Identifier: MIT
// Deletes a snapshot's folder, to prune it or to clear up after a killed process. Refuses a folder that holds
// anything but the regular files of a snapshot. Follows no symbolic link.
#pragma once

#include <looptorch/base/files/file.hpp>
#include <looptorch/state/snapshot/snapshot_error.hpp>
#include <looptorch/state/snapshot/snapshot_names.hpp>

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace looptorch::detail {

/// Opens a folder. Fails if the path itself is a symbolic link.
[[nodiscard]] inline FileDescriptor open_folder(const std::filesystem::path& path) {
  return FileDescriptor(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
}

/// Returns the names in a folder, or nothing if it cannot be read.
[[nodiscard]] inline std::optional<std::vector<std::string>> names_in(const FileDescriptor& folder) {
  struct Stream {
    DIR* const directory;
    ~Stream() {
      if (directory) ::closedir(directory);
    }
  };
  FileDescriptor copy(::openat(folder.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const Stream stream{copy.get() < 0 ? nullptr : ::fdopendir(copy.get())};
  if (!stream.directory) return std::nullopt;
  (void)copy.release();  // the stream closes it
  std::vector<std::string> names;
  for (;;) {
    errno = 0;  // readdir returns null at the end, too
    const dirent* entry = ::readdir(stream.directory);
    if (!entry) return errno == 0 ? std::optional(std::move(names)) : std::nullopt;
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
}

[[nodiscard]] inline bool is_regular_in(const FileDescriptor& folder, const std::string& name) {
  struct stat status {};
  return ::fstatat(folder.get(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(status.st_mode);
}

/// Returns the name of a file in the folder that no snapshot has, or nothing if there is none.
[[nodiscard]] inline std::optional<std::string> find_foreign(const FileDescriptor& folder,
                                                             const std::vector<std::string>& names) {
  for (const auto& name : names) {
    if (!is_snapshot_file(name) || !is_regular_in(folder, name)) return name;
  }
  return std::nullopt;
}

/// Throws FileError if the folder cannot be read, and SnapshotError if it has a file that no snapshot has.
inline void expect_only_snapshot(const FileDescriptor& folder, const std::filesystem::path& path) {
  const auto names = folder.get() < 0 ? std::nullopt : names_in(folder);
  if (!names) throw_file_error(path, "cannot read the folder", errno);
  if (const auto foreign = find_foreign(folder, *names)) {
    throw SnapshotError(
        message((path / *foreign).string(), ": is no file of a snapshot, so its folder stays"));
  }
}

/// Removes an open folder with its files. The manifest is deleted last, since it holds the lock. Returns
/// false, with errno set, if something stays. Removes nothing if the folder has a file that no snapshot has.
inline bool remove_open_snapshot(const FileDescriptor& folder, const std::filesystem::path& path) {
  const auto names = names_in(folder);
  if (!names) return false;
  if (find_foreign(folder, *names)) return errno = ENOTEMPTY, false;
  bool gone = true;
  const auto remove = [&](std::string_view name) {
    gone &= ::unlinkat(folder.get(), std::string(name).c_str(), 0) == 0 || errno == ENOENT;
  };
  for (const auto name : kSnapshotFiles) remove(name);
  for (const auto& name : *names)
    if (is_shard_file(name)) remove(name);
  if (gone) remove(kManifestFile);
  return gone && (::rmdir(path.c_str()) == 0 || errno == ENOENT);
}

/// Removes a folder that no other process uses. Returns false, with errno set, if something stays.
inline bool try_remove_snapshot(const std::filesystem::path& path) {
  const auto folder = open_folder(path);
  return folder.get() >= 0 && remove_open_snapshot(folder, path);
}

}  // namespace looptorch::detail
