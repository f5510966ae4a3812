// SPDX-License-Identifier: MIT
// Writes a file that is either complete or absent: a temporary file beside the target is written, synced, and
// then renamed. Use it for everything that a later run reads back. Costs one fsync of the file and one of its
// folder.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/files/file.hpp>
#include <looptorch/base/files/output_file.hpp>

#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <mutex>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

namespace looptorch {

/// A file that is being written. Until `commit` the target keeps its old contents, or does not exist. Without
/// `commit` the destructor removes what was written. A killed process leaves at most `TARGET.partial-PID-N`,
/// which the next process to write into that folder removes.
class AtomicFile {
 public:
  /// Throws FileError if the folder cannot be written or the target exists and is not a regular file.
  explicit AtomicFile(std::filesystem::path target);
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile();

  /// Appends. Throws FileError, for example on a full disk.
  void write(const void* data, std::size_t size) { file_.write(data, size); }
  void write(std::string_view text) { write(text.data(), text.size()); }

  /// Syncs and renames. Throws FileError, after which the target is unchanged.
  void commit();

 private:
  static std::filesystem::path checked(std::filesystem::path target);
  detail::OutputFile open_partial();

  std::filesystem::path target_, partial_;
  detail::FileDescriptor lock_;  // the same open file, which stays locked until it has its name
  detail::OutputFile file_;
};

namespace detail {

/// True for `NAME.partial-PID-N`, the name of a file that is being written.
[[nodiscard]] inline bool is_partial_file(std::string_view name) {
  constexpr std::string_view kMark = ".partial-", kDigits = "0123456789";
  const auto mark = name.rfind(kMark);
  if (mark == name.npos || mark == 0) return false;
  const auto numbers = name.substr(mark + kMark.size());
  const auto dash = numbers.find_first_not_of(kDigits);
  return dash != numbers.npos && dash > 0 && numbers[dash] == '-' && dash + 1 < numbers.size() &&
         numbers.find_first_not_of(kDigits, dash + 1) == numbers.npos;
}

/// Removes files that killed processes were writing in a folder. Files that are being written are locked, and
/// stay; on a file system without locks all stay.
inline void sweep_partial_files(const std::filesystem::path& folder) {
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    if (!is_partial_file(entry->path().filename().string())) continue;
    const FileDescriptor file(::open(entry->path().c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    struct stat status {};
    if (file.get() >= 0 && ::fstat(file.get(), &status) == 0 && S_ISREG(status.st_mode) &&
        retried([&] { return ::flock(file.get(), LOCK_EX | LOCK_NB); }) == 0)
      ::unlink(entry->path().c_str());
  }
}

/// Calls sweep_partial_files once a process and folder: a folder may get thousands of files.
inline void sweep_partial_files_once(const std::filesystem::path& folder) {
  static std::mutex mutex;
  static auto& swept = *new std::set<std::filesystem::path>;  // files are written until the process ends
  const std::lock_guard lock(mutex);
  if (swept.insert(folder).second) sweep_partial_files(folder);
}

}  // namespace detail

/// Replaces the file's contents in one step. Throws FileError.
inline void write_file_atomically(const std::filesystem::path& target, std::string_view contents) {
  AtomicFile file(target);
  file.write(contents);
  file.commit();
}

inline AtomicFile::AtomicFile(std::filesystem::path target)
    : target_(checked(std::move(target))), file_(open_partial()) {}

inline std::filesystem::path AtomicFile::checked(std::filesystem::path target) {
  std::error_code ignored;
  const auto status = std::filesystem::status(target, ignored);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
    throw FileError(target.string() + ": exists and is not a regular file");
  }
  return target;
}

inline AtomicFile::~AtomicFile() {
  if (!partial_.empty()) ::unlink(partial_.c_str());
}

inline detail::OutputFile AtomicFile::open_partial() {
  detail::sweep_partial_files_once(detail::folder_of(target_));
  for (;;) {
    partial_ = detail::sibling_of(target_, "partial");
    auto file = detail::create_file(partial_);
    const int reason = errno;
    if (file.get() >= 0 && detail::lock_new_file(file, partial_)) {
      lock_ = detail::FileDescriptor(::fcntl(file.get(), F_DUPFD_CLOEXEC, 0));
      return {std::move(file), target_};
    }
    if (file.get() >= 0 || reason == EEXIST) continue;
    partial_.clear();
    detail::throw_file_error(target_, "cannot create", reason);
  }
}

inline void AtomicFile::commit() {
  file_.sync();
  file_.close();
  if (::rename(partial_.c_str(), target_.c_str()) != 0) {
    detail::throw_file_error(target_, "cannot replace", errno);
  }
  partial_.clear();
  // Makes the rename durable. The file is complete even where this fails.
  (void)detail::try_sync_folder(detail::folder_of(target_));
}

}  // namespace looptorch
