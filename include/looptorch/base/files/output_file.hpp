// SPDX-License-Identifier: MIT
// Files and folders being made, down to the disk: write, fsync, and errors that name the path and the
// system's reason. What atomic_file.hpp and snapshots are written with.
#pragma once

#include <looptorch/base/files/file.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>

namespace looptorch::detail {

/// A system call's result, once no signal comes in between.
template <class Call>
[[nodiscard]] int retried(Call call) {
  int result = call();
  while (result != 0 && errno == EINTR) result = call();
  return result;
}

/// `PATH.KIND-PID-N`, where N is new for this process: a name beside `path` that nobody else takes.
[[nodiscard]] inline std::filesystem::path sibling_of(std::filesystem::path path, std::string_view kind) {
  static std::atomic<unsigned> counter{0};
  path += message('.', kind, '-', ::getpid(), '-', counter++);
  return path;
}

/// A file that nobody else has made before, with the permissions that the umask leaves; where it cannot be
/// made the descriptor is -1 and errno says why.
[[nodiscard]] inline FileDescriptor create_file(const std::filesystem::path& path) {
  return FileDescriptor(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
}

/// An open file that is written from its beginning to its end; all operations throw FileError, which calls it
/// by the name it is to have.
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
      if (put == 0) throw_file_error(named_, "cannot write", EIO);  // or this would go on for ever
      bytes += put;
      size -= static_cast<std::size_t>(put);
    }
  }
  void write(std::string_view text) { write(text.data(), text.size()); }

  /// Waits until the disk has all of it.
  void sync() const {
    if (retried([&] { return ::fsync(file_.get()); }) != 0) throw_file_error(named_, "cannot write", errno);
  }

  /// Some file systems tell of a failed write only here.
  void close() {
    if (::close(file_.release()) != 0 && errno != EINTR) throw_file_error(named_, "cannot write", errno);
  }

  [[nodiscard]] int descriptor() const { return file_.get(); }

 private:
  FileDescriptor file_;
  std::filesystem::path named_;
};

/// The folder that a path is in.
[[nodiscard]] inline std::filesystem::path folder_of(const std::filesystem::path& path) {
  return path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
}

/// Makes what was created, renamed or removed in a folder durable. False with errno where that fails; true
/// too where the file system cannot sync a folder.
[[nodiscard]] inline bool try_sync_folder(const std::filesystem::path& folder) {
  const FileDescriptor handle(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const auto sync = [&] { return ::fsync(handle.get()); };
  return handle.get() >= 0 && (retried(sync) == 0 || errno == EINVAL || errno == ENOTSUP);
}

/// Throws FileError.
inline void sync_folder(const std::filesystem::path& folder) {
  if (!try_sync_folder(folder)) throw_file_error(folder, "cannot write the folder", errno);
}

/// Makes a folder and those above it that are missing, durably; throws FileError.
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
