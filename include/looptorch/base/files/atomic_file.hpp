// SPDX-License-Identifier: MIT
// Files that are either complete or absent: written beside the target under another name, synced, then
// renamed. Use it for everything that a later run reads back. Costs one fsync of the file and one of its
// folder.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/files/file.hpp>
#include <looptorch/base/files/output_file.hpp>

#include <stdio.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>

namespace looptorch {

/// A file that is being written. Until `commit` the target keeps its old contents, or does not exist. Without
/// `commit` the destructor removes what was written. A process that is killed leaves at most
/// `TARGET.partial-PID-N` behind.
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
  detail::OutputFile file_;
};

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
  detail::FileDescriptor file;
  do {
    partial_ = detail::sibling_of(target_, "partial");
    file = detail::create_file(partial_);
  } while (file.get() < 0 && errno == EEXIST);
  if (file.get() < 0) detail::throw_file_error(target_, "cannot create", errno);
  return {std::move(file), target_};
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
