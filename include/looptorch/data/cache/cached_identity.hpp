// SPDX-License-Identifier: MIT
// Identifies a file for a cache of samples made from it: by name, size and time, which costs reading its
// folder entry, or by contents, which costs reading the file.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/files/file.hpp>
#include <looptorch/base/hash/checksum.hpp>

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace looptorch {

/// Returns the file's absolute path, size and time of last change, to the nanosecond. Throws FileError.
inline std::string file_identity(const std::filesystem::path& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) detail::throw_file_error(path, "cannot look at", errno);
  const std::string name = std::filesystem::absolute(path).lexically_normal().string();
  return message(name, '|', status.st_size, '|', status.st_mtim.tv_sec, '.', status.st_mtim.tv_nsec);
}

/// Returns the file's size and a 128-bit checksum of its contents, which stay the same when the file is
/// copied or moved. Throws FileError.
inline std::string content_identity(const std::filesystem::path& path) {
  const InputFile file(path);
  detail::Checksum low(1), high(2);
  std::vector<std::byte> piece(std::size_t{1} << 20);
  for (std::uint64_t at = 0; at < file.size(); at += piece.size()) {
    piece.resize(static_cast<std::size_t>(std::min<std::uint64_t>(piece.size(), file.size() - at)));
    file.read_at(at, piece.data(), piece.size());
    low.add(piece.data(), piece.size());
    high.add(piece.data(), piece.size());
  }
  return message(file.size(), '|', low.value(), '|', high.value());
}

}  // namespace looptorch
