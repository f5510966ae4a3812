// SPDX-License-Identifier: MIT
// Appends to a file, each time in one write, so that a killed process leaves at most the last piece
// incomplete. Metrics and TensorBoard's events are written this way.
#pragma once

#include <looptorch/base/files/atomic_file.hpp>
#include <looptorch/base/files/output_file.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/types.h>

#include <cerrno>
#include <filesystem>
#include <optional>
#include <string_view>
#include <tuple>
#include <utility>

namespace looptorch::report {

/// A file to append to. Opened by the first `append`, or again after `replace`. For one thread and process.
class AppendedFile {
 public:
  explicit AppendedFile(std::filesystem::path path) : path_(std::move(path)) {}

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

  /// Replaces the contents in one step; later pieces follow them. Throws FileError.
  void replace(std::string_view contents) {
    file_.reset();
    write_file_atomically(path_, contents);
  }

  /// Appends in one write. Creates the file if it is missing. Throws FileError.
  void append(std::string_view piece) {
    if (piece.empty()) return;
    if (!file_) open();
    file_->write(piece);
  }

  /// Closes the file. A later `append` opens it again.
  void close() {
    file_.reset();
    left_ = identity();
  }
  /// True if `close` has closed the file, and nothing has changed it since.
  [[nodiscard]] bool is_as_left() const { return left_ && left_ == identity(); }

 private:
  /// The device, inode and size of a file.
  using Identity = std::tuple<dev_t, ino_t, off_t>;

  /// Returns the identity of the file at the path; nothing if there is none.
  [[nodiscard]] std::optional<Identity> identity() const {
    struct stat status {};
    if (::stat(path_.c_str(), &status) != 0) return std::nullopt;
    return Identity{status.st_dev, status.st_ino, status.st_size};
  }

  void open() {
    looptorch::detail::FileDescriptor file(
        ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
    if (file.get() < 0) looptorch::detail::throw_file_error(path_, "cannot create", errno);
    file_.emplace(std::move(file), path_);
  }

  std::filesystem::path path_;
  std::optional<looptorch::detail::OutputFile> file_;
  std::optional<Identity> left_;
};

}  // namespace looptorch::report
