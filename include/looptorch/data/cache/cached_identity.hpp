// SPDX-License-Identifier: MIT
// Returns a text that changes when a file changes, from which CachedDataset makes the key of the file's
// samples. `file_identity` takes path, size and time of change, which costs one look-up in the file system.
// `remembered_content_identity` takes a checksum of the contents: it reads each file once per process, and
// makes the cache usable on another machine.
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
#include <map>
#include <shared_mutex>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace looptorch {
namespace detail {

/// Returns a file's metadata. Throws FileError.
[[nodiscard]] inline struct stat status_of(const std::filesystem::path& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) throw_file_error(path, "cannot look at", errno);
  return status;
}

}  // namespace detail

/// Returns the file's absolute path, size and time of last change, to the nanosecond. Throws FileError.
inline std::string file_identity(const std::filesystem::path& path) {
  const struct stat status = detail::status_of(path);
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

/// Remembers the content identities of files until the file system shows that they changed. Safe to use from
/// several threads.
class ContentIdentities {
 public:
  /// Returns `content_identity(path)`. Reads the file the first time, and again if its size, times of change
  /// or place on the disk differ. Otherwise costs one look-up in the file system. Throws FileError.
  [[nodiscard]] std::string operator()(const std::filesystem::path& path) {
    const State now = state_of(path);
    {
      const std::shared_lock lock(mutex_);
      if (const auto known = known_.find(path.native()); known != known_.end() && known->second.first == now)
        return known->second.second;
    }
    std::string identity = content_identity(path);  // may include a later write: the next call notices
    const std::lock_guard lock(mutex_);
    known_.insert_or_assign(path.native(), std::pair(now, identity));
    return identity;
  }

 private:
  using State = std::tuple<std::uint64_t, std::uint64_t, std::int64_t, std::int64_t, std::int64_t,
                           std::int64_t, std::int64_t>;

  [[nodiscard]] static State state_of(const std::filesystem::path& path) {
    const struct stat status = detail::status_of(path);
    return {status.st_dev,          status.st_ino,         status.st_size,        status.st_mtim.tv_sec,
            status.st_mtim.tv_nsec, status.st_ctim.tv_sec, status.st_ctim.tv_nsec};
  }

  std::shared_mutex mutex_;
  std::map<std::string, std::pair<State, std::string>> known_;
};

/// Returns the file's content identity. Shares one ContentIdentities in the process, so that each file is
/// read once, however many samples are made of it. Use it to cache samples of files; if reading all files
/// once takes too long, use file_identity. Throws FileError.
[[nodiscard]] inline std::string remembered_content_identity(const std::filesystem::path& path) {
  static ContentIdentities identities;
  return identities(path);
}

}  // namespace looptorch
