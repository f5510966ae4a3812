// SPDX-License-Identifier: MIT
// A file as memory: opening costs nothing, pages come from the disk as they are touched and are shared with
// every other process that maps the file. Use it for large files of which parts are read, or read once.
#pragma once

#include <looptorch/base/files/file.hpp>

#include <sys/mman.h>

#include <cerrno>
#include <cstddef>

namespace looptorch {

/// The whole of a file, privately: what is written to the memory never reaches the file. Files that are
/// replaced by a rename, as AtomicFile does, stay as they were mapped; one that is cut in place meanwhile
/// ends the process (SIGBUS) when the lost part is touched.
class MappedFile {
 public:
  /// Throws FileError if the system cannot map the file, or if it changed since `file` was opened.
  explicit MappedFile(const InputFile& file);
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  /// Begins at a page; null for an empty file.
  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] std::size_t size() const { return size_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t size_;
};

inline MappedFile::MappedFile(const InputFile& file) : size_(static_cast<std::size_t>(file.size())) {
  file.expect_unchanged();
  if (size_ == 0) return;
  // Without MAP_NORESERVE the system would set swap aside for copies of pages that are hardly ever made.
  void* mapped =
      ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, file.descriptor(), 0);
  if (mapped == MAP_FAILED) detail::throw_file_error(file.path(), "cannot map", errno);
  data_ = static_cast<std::byte*>(mapped);
}

inline MappedFile::~MappedFile() {
  if (data_) ::munmap(data_, size_);
}

}  // namespace looptorch
