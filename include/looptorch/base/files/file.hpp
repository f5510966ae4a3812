// SPDX-License-Identifier: MIT
// Reads files, with errors that name the path and the system's reason. Reads go straight into the caller's
// memory, at any offset, so that a large file is never held twice.
#pragma once

#include <looptorch/base/error.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>
#include <system_error>
#include <utility>

namespace looptorch {

/// Thrown for a file that cannot be opened, read, written or renamed. Names the path and the system's reason.
struct FileError : Error {
  using Error::Error;
};

namespace detail {

[[noreturn]] inline void throw_file_error(const std::filesystem::path& path, std::string_view what,
                                          int code) {
  throw FileError(message(path.string(), ": ", what, ": ", std::generic_category().message(code)));
}

/// False if there is certainly no such file. True if that cannot be found out: opening it then says why.
[[nodiscard]] inline bool may_exist(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::status(path, ignored).type() != std::filesystem::file_type::not_found;
}

/// Owns a POSIX file descriptor.
class FileDescriptor {
 public:
  explicit FileDescriptor(int fd = -1) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~FileDescriptor() {
    if (fd_ >= 0) ::close(fd_);
  }

  [[nodiscard]] int get() const { return fd_; }
  [[nodiscard]] int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

}  // namespace detail

/// A regular file that is open for reading. All operations throw FileError.
class InputFile {
 public:
  explicit InputFile(std::filesystem::path path);

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] std::uint64_t size() const { return size_; }

  /// Reads `size` bytes from `offset` on. Throws if the file ends before that.
  void read_at(std::uint64_t offset, void* data, std::size_t size) const;

  /// Throws if the file was written to or truncated since it was opened, judged by its size and modification
  /// time.
  void expect_unchanged() const;

  /// Returns the file descriptor, for mmap and the like. This object keeps it and closes it.
  [[nodiscard]] int descriptor() const { return file_.get(); }

 private:
  std::filesystem::path path_;
  detail::FileDescriptor file_;
  std::uint64_t size_ = 0;
  timespec changed_{};
};

/// Returns the whole file. Throws FileError if it is larger than `max_bytes`.
[[nodiscard]] std::string read_file(const std::filesystem::path& path,
                                    std::uint64_t max_bytes = std::numeric_limits<std::uint64_t>::max());

// O_NONBLOCK opens a named pipe at once too, so that it can be refused.
inline InputFile::InputFile(std::filesystem::path path)
    : path_(std::move(path)), file_(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  struct stat status {};
  if (file_.get() < 0 || ::fstat(file_.get(), &status) != 0) {
    detail::throw_file_error(path_, "cannot open", errno);
  }
  if (!S_ISREG(status.st_mode)) throw FileError(path_.string() + ": is not a regular file");
  size_ = static_cast<std::uint64_t>(status.st_size);
  changed_ = status.st_mtim;
}

inline void InputFile::expect_unchanged() const {
  struct stat now {};
  if (::fstat(file_.get(), &now) != 0) detail::throw_file_error(path_, "cannot read", errno);
  if (static_cast<std::uint64_t>(now.st_size) != size_ || now.st_mtim.tv_sec != changed_.tv_sec ||
      now.st_mtim.tv_nsec != changed_.tv_nsec) {
    throw FileError(path_.string() + ": was changed while it was read");
  }
}

inline void InputFile::read_at(std::uint64_t offset, void* data, std::size_t size) const {
  auto* out = static_cast<char*>(data);
  while (size > 0) {
    const auto got = ::pread(file_.get(), out, size, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) detail::throw_file_error(path_, "cannot read", errno);
    if (got == 0) throw FileError(message(path_.string(), ": ends at byte ", offset, ", too early"));
    out += got;
    offset += static_cast<std::uint64_t>(got);
    size -= static_cast<std::size_t>(got);
  }
}

inline std::string read_file(const std::filesystem::path& path, std::uint64_t max_bytes) {
  const InputFile file(path);
  if (file.size() > max_bytes) {
    throw FileError(
        message(path.string(), ": ", file.size(), " bytes, more than the ", max_bytes, " allowed"));
  }
  std::string contents(static_cast<std::size_t>(file.size()), '\0');
  file.read_at(0, contents.data(), contents.size());
  return contents;
}

}  // namespace looptorch
