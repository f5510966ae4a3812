// SPDX-License-Identifier: MIT
// Lets LibTorch's zip writers write .pt2 and TorchScript files through an AtomicFile: if writing fails, an
// older file of the same name stays unchanged.
#pragma once

#include <looptorch/base/files/atomic_file.hpp>

#include <cstddef>
#include <exception>
#include <filesystem>
#include <functional>
#include <utility>

namespace looptorch::detail {

/// Takes the bytes of a writer. LibTorch's writer also writes in its destructor, where an exception would end
/// the process, so the first error is kept until `commit`.
class ArchiveFile {
 public:
  /// Throws FileError if the folder cannot be written.
  explicit ArchiveFile(std::filesystem::path target) : file_(std::move(target)) {}

  /// Returns the function that LibTorch calls with each piece. This object must outlive the function.
  [[nodiscard]] std::function<std::size_t(const void*, std::size_t)> writer() {
    return [this](const void* data, std::size_t size) {
      if (!failure_) write(data, size);
      return size;
    };
  }

  /// Makes the file appear. Throws FileError, also for an earlier write that failed.
  void commit() {
    if (failure_) std::rethrow_exception(failure_);
    file_.commit();
  }

 private:
  void write(const void* data, std::size_t size) {
    try {
      file_.write(data, size);
    } catch (...) {
      failure_ = std::current_exception();
    }
  }

  AtomicFile file_;
  std::exception_ptr failure_;
};

}  // namespace looptorch::detail
