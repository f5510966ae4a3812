// SPDX-License-Identifier: MIT
// A temporary file that is deleted however the process ends, since it has no name on the disk. It holds data
// that do not fit in memory: sound from a pipe, so that it can be read twice, and a growing JSON
// transcript.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/files/file.hpp>

#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

namespace whisper {

namespace detail {

/// Returns an error with the system's reason.
inline looptorch::FileError system_error(const std::string& name, const char* what) {
  return looptorch::FileError(
      looptorch::message(name, ": ", what, ": ", std::generic_category().message(errno)));
}

}  // namespace detail

/// A file that is deleted with this object, and however the process ends.
class UnnamedFile {
 public:
  /// Creates the file in the folder for temporary files. Throws looptorch::FileError.
  UnnamedFile() {
    auto name = (std::filesystem::temp_directory_path() / "looptorch-pcm-XXXXXX").string();
    file_ = ::mkstemp(name.data());
    if (file_ < 0) throw detail::system_error(name, "cannot create");
    ::unlink(name.c_str());
  }
  UnnamedFile(UnnamedFile&& other) noexcept : file_(std::exchange(other.file_, -1)) {}
  UnnamedFile& operator=(UnnamedFile other) noexcept {
    std::swap(file_, other.file_);
    return *this;
  }
  ~UnnamedFile() {
    if (file_ >= 0) ::close(file_);
  }

  [[nodiscard]] int descriptor() const { return file_; }

  /// Appends. Throws looptorch::FileError, for example on a full disk.
  void write(std::string_view bytes) const {
    while (!bytes.empty()) {
      const auto put = ::write(file_, bytes.data(), bytes.size());
      if (put < 0 && errno != EINTR) throw detail::system_error("a temporary file", "cannot write");
      if (put > 0) bytes.remove_prefix(static_cast<std::size_t>(put));
    }
  }

  /// Calls `use` for all written data, block by block. Throws looptorch::FileError.
  template <class Use>
  void read(Use use) const {
    std::array<char, std::size_t{1} << 16> block;
    for (off_t at = 0;;) {
      const auto got = ::pread(file_, block.data(), block.size(), at);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) throw detail::system_error("a temporary file", "cannot read");
      if (got == 0) return;
      use(std::string_view(block.data(), static_cast<std::size_t>(got)));
      at += got;
    }
  }

  /// Returns a path by which this process opens the file.
  [[nodiscard]] std::filesystem::path path() const { return "/proc/self/fd/" + std::to_string(file_); }

 private:
  int file_ = -1;
};

}  // namespace whisper
