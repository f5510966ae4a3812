// SPDX-License-Identifier: MIT
// Writes files and folders through to the disk, by write and fsync. Errors name the path and the system's
// reason. Used by atomic_file.hpp and the snapshots.
#pragma once

#include <looptorch/base/files/file.hpp>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>

namespace looptorch::detail {

/// Repeats a system call until no signal interrupts it and returns its result.
template <class Call>
[[nodiscard]] int retried(Call call) {
  int result = call();
  while (result != 0 && errno == EINTR) result = call();
  return result;
}

/// Returns `PATH.KIND-PID-N`, where N is new for this process: a name next to `path` that no other process or
/// thread uses. Shortens the path's name, by whole characters, if the new one would be too long for a file.
[[nodiscard]] inline std::filesystem::path sibling_of(std::filesystem::path path, std::string_view kind) {
  static std::atomic<unsigned> counter{0};
  constexpr std::size_t kLongest = 255;  // bytes, in all usual file systems
  const std::string end = message('.', kind, '-', ::getpid(), '-', counter++);
  const std::string name = path.filename().native();
  std::size_t kept = std::min(name.size(), kLongest - end.size());
  while (kept > 0 && kept < name.size() && (static_cast<unsigned char>(name[kept]) & 0xC0) == 0x80) --kept;
  return path.replace_filename(name.substr(0, kept) + end);
}

/// Creates a new file, with the permissions that the umask leaves. If it exists or cannot be created, the
/// descriptor is -1 and errno has the reason.
[[nodiscard]] inline FileDescriptor create_file(const std::filesystem::path& path) {
  return FileDescriptor(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
}

/// Locks a file that was just created at `path`. The lock tells other processes that the file is being
/// written, not left by a killed process. Returns false if one of them removed the file before it was locked.
/// Returns true on a file system without locks, where no process removes such files. If a file system counts
/// no links, looks the file up by name.
[[nodiscard]] inline bool lock_new_file(const FileDescriptor& file, const std::filesystem::path& path) {
  if (retried([&] { return ::flock(file.get(), LOCK_EX | LOCK_NB); }) != 0 && errno == EWOULDBLOCK)
    return false;
  struct stat status {};
  return ::fstat(file.get(), &status) == 0 && (status.st_nlink > 0 || ::stat(path.c_str(), &status) == 0);
}

/// An open file that is written from its beginning to its end. All operations throw FileError, which names
/// the file by `named`, its final path.
class OutputFile {
 public:
  OutputFile(FileDescriptor file, std::filesystem::path named)
      : file_(std::move(file)), named_(std::move(named)) {}

  void write(const void* data, std::size_t size) {
    const auto* bytes = static_cast<const char*>(data);
    while (size > 0) {
      const auto put = ::write(file_.get(), bytes, size);
      if (put < 0 && errno == EINTR) continue;
      if (put < 0) throw_file_error(named_, "cannot write", errno);
      if (put == 0) throw_file_error(named_, "cannot write", EIO);  // or the loop would never end
      bytes += put;
      size -= static_cast<std::size_t>(put);
    }
  }
  void write(std::string_view text) { write(text.data(), text.size()); }

  /// Blocks until the disk has all of the file.
  void sync() const {
    if (retried([&] { return ::fsync(file_.get()); }) != 0) throw_file_error(named_, "cannot write", errno);
  }

  /// Closes the file. Throws here too, since some file systems report a failed write only on close.
  void close() {
    if (::close(file_.release()) != 0 && errno != EINTR) throw_file_error(named_, "cannot write", errno);
  }

  [[nodiscard]] int descriptor() const { return file_.get(); }

 private:
  FileDescriptor file_;
  std::filesystem::path named_;
};

/// Returns the folder that contains `path`.
[[nodiscard]] inline std::filesystem::path folder_of(const std::filesystem::path& path) {
  return path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
}

/// Makes creations, renames and removals in a folder durable. True also if the file system cannot sync
/// folders. False, with errno set, if it fails.
[[nodiscard]] inline bool try_sync_folder(const std::filesystem::path& folder) {
  const FileDescriptor handle(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const auto sync = [&] { return ::fsync(handle.get()); };
  return handle.get() >= 0 && (retried(sync) == 0 || errno == EINVAL || errno == ENOTSUP);
}

/// Syncs a folder as `try_sync_folder` does. Throws FileError if that fails.
inline void sync_folder(const std::filesystem::path& folder) {
  if (!try_sync_folder(folder)) throw_file_error(folder, "cannot write the folder", errno);
}

/// Creates a folder and its missing parents, durably. Throws FileError.
inline void make_folders(const std::filesystem::path& folder) {
  if (::mkdir(folder.c_str(), 0777) == 0) return sync_folder(folder_of(folder));
  if (errno == ENOENT && folder_of(folder) != folder) {
    make_folders(folder_of(folder));
    if (::mkdir(folder.c_str(), 0777) == 0) return sync_folder(folder_of(folder));
  }
  const int reason = errno;
  std::error_code ignored;
  if (!std::filesystem::is_directory(folder, ignored)) throw_file_error(folder, "cannot create", reason);
}

}  // namespace looptorch::detail
