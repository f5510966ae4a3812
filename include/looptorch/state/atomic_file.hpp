// SPDX-License-Identifier: MIT
// Files that are either complete or not there: written beside the target under another name, synced, renamed.
// Use it for all that a later run reads back. Costs one fsync of the file and one of its folder.
#pragma once

#include <looptorch/error.hpp>
#include <looptorch/state/file.hpp>

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>

namespace looptorch {

/// A file in the making. Until `commit` the target keeps its old contents, or does not exist; without
/// `commit` the destructor removes what was written. A process that is killed leaves at most
/// `TARGET.partial-PID-N` behind.
class AtomicFile {
 public:
  /// Throws FileError if the folder cannot be written or the target exists and is not a regular file.
  explicit AtomicFile(std::filesystem::path target);
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile();

  /// Appends; throws FileError, on a full disk for example.
  void write(const void* data, std::size_t size);
  void write(std::string_view text) { write(text.data(), text.size()); }

  /// Syncs and renames; throws FileError, after which the target is as it was.
  void commit();

 private:
  void open_partial();
  void sync_folder() const;

  std::filesystem::path target_, partial_;
  detail::FileDescriptor file_;
};

/// Replaces the file's contents in one step; throws FileError.
inline void write_file_atomically(const std::filesystem::path& target, std::string_view contents) {
  AtomicFile file(target);
  file.write(contents);
  file.commit();
}

inline AtomicFile::AtomicFile(std::filesystem::path target) : target_(std::move(target)) {
  std::error_code ignored;
  const auto status = std::filesystem::status(target_, ignored);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
    throw FileError(target_.string() + ": exists and is not a regular file");
  }
  open_partial();
}

inline AtomicFile::~AtomicFile() {
  if (!partial_.empty()) ::unlink(partial_.c_str());
}

inline void AtomicFile::open_partial() {
  static std::atomic<unsigned> counter{0};
  do {
    partial_ = target_;
    partial_ += detail::message(".partial-", ::getpid(), "-", counter++);
    file_ = detail::FileDescriptor(::open(partial_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  } while (file_.get() < 0 && errno == EEXIST);
  if (file_.get() < 0) {
    partial_.clear();
    detail::throw_file_error(target_, "cannot create", errno);
  }
}

inline void AtomicFile::write(const void* data, std::size_t size) {
  const auto* bytes = static_cast<const char*>(data);
  while (size > 0) {
    const auto put = ::write(file_.get(), bytes, size);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) detail::throw_file_error(target_, "cannot write", errno);
    bytes += put;
    size -= static_cast<std::size_t>(put);
  }
}

inline void AtomicFile::commit() {
  if (::fsync(file_.get()) != 0) detail::throw_file_error(target_, "cannot write", errno);
  if (::close(file_.release()) != 0) detail::throw_file_error(target_, "cannot write", errno);
  if (::rename(partial_.c_str(), target_.c_str()) != 0) {
    detail::throw_file_error(target_, "cannot replace", errno);
  }
  partial_.clear();
  sync_folder();
}

/// Makes the rename itself durable. Some file systems cannot sync a folder; the file is complete either way.
inline void AtomicFile::sync_folder() const {
  const auto folder = target_.has_parent_path() ? target_.parent_path() : std::filesystem::path(".");
  const detail::FileDescriptor handle(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (handle.get() >= 0) ::fsync(handle.get());
}

}  // namespace looptorch
