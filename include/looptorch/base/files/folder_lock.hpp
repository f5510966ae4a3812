// SPDX-License-Identifier: MIT
// Reserves a folder for one run. Two runs that wrote into one folder would mix their files, and prune each
// other's snapshots.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/files/output_file.hpp>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <cerrno>
#include <filesystem>
#include <string_view>

namespace looptorch::detail {

/// Locks a folder (flock) until it is destroyed or the process ends, however it ends. Has no effect on file
/// systems that cannot lock folders, such as NFS.
class FolderLock {
 public:
  /// Throws UsageError if this or another process has locked the folder; `what` is what runs write there.
  explicit FolderLock(const std::filesystem::path& folder, std::string_view what = "its snapshots")
      : handle_(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
    const auto lock = [&] { return ::flock(handle_.get(), LOCK_EX | LOCK_NB); };
    if (handle_.get() >= 0 && retried(lock) != 0 && errno == EWOULDBLOCK)
      throw UsageError(message(folder.string(), ": another run writes ", what,
                               " there: end it first, or choose another folder"));
  }

  /// True if `folder` is still the folder that was locked, and was not removed or replaced.
  [[nodiscard]] bool is_of(const std::filesystem::path& folder) const {
    struct stat locked {};
    struct stat named {};
    return ::fstat(handle_.get(), &locked) == 0 && ::stat(folder.c_str(), &named) == 0 &&
           locked.st_ino == named.st_ino && locked.st_dev == named.st_dev;
  }

 private:
  FileDescriptor handle_;
};

}  // namespace looptorch::detail
