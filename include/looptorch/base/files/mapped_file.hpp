// SPDX-License-Identifier: MIT
// Maps a file into memory. Opening it costs nothing; pages come from the disk as they are touched and are
// shared with every other process that maps the file. Use it for large files that are read in part or only
// once.
#pragma once

#include <looptorch/base/files/file.hpp>

#include <sys/mman.h>

#include <cerrno>
#include <cstddef>

namespace looptorch {

/// Maps a whole file privately: writes to the memory never reach the file. A file that is replaced by a
/// rename, as AtomicFile does, stays mapped in its old version. If the file is truncated in place, touching
/// the lost part ends the process (SIGBUS). at::MapAllocator would reserve swap and throw c10::Error.
class MappedFile {
 public:
  /// Throws FileError if the system cannot map the file, or if it changed since `file` was opened.
  explicit MappedFile(const InputFile& file);
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  /// Returns the first byte, aligned to a page. Null for an empty file.
  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] std::size_t size() const { return size_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t size_;
};

inline MappedFile::MappedFile(const InputFile& file) : size_(static_cast<std::size_t>(file.size())) {
  file.expect_unchanged();
  if (size_ == 0) return;
  // Without MAP_NORESERVE the system would reserve swap for copies of pages, which are hardly ever made.
  void* mapped =
      ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, file.descriptor(), 0);
  if (mapped == MAP_FAILED) detail::throw_file_error(file.path(), "cannot map", errno);
  data_ = static_cast<std::byte*>(mapped);
}

inline MappedFile::~MappedFile() {
  if (data_) ::munmap(data_, size_);
}

}  // namespace looptorch
