// SPDX-License-Identifier: MIT
// A disk that fails: a program that links disk_shim.cpp has its own open, write, fsync, rename, ... in place
// of the C library's. They do the same until a fault is armed; then the n-th call fails or is the last, as in
// a crash or a power failure, or the disk is full. For calls out of this program, looptorch's headers among
// them, not those that other libraries make, unless the shim is preloaded (preloaded_shim.cpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

namespace looptorch::testing {

/// What is to go wrong. Calls are counted from 0, on all threads. A write that is the last of a process takes
/// half of its bytes. While a fault is armed fsync does not wait for the real disk.
struct DiskFault {
  enum Kind {
    fail,           ///< Call `at` does nothing and returns `error`.
    crash,          ///< From call `at` on nothing is done any more, as if the process had died.
    power_failure,  ///< The same, and what was not fsynced is lost.
    kill,           ///< SIGKILL instead of call `at`.
    act,            ///< `action` is run before call `at`.
  };
  Kind kind = fail;
  int at = -1;
  /// Only calls with this text in their names, as `FaultyDisk::calls` has them, are counted; empty: all.
  std::string of{};
  int error = 5;  // EIO
  std::function<void()> action{};

  /// Writes take so many bytes in all, then ENOSPC.
  std::uint64_t full_after = std::numeric_limits<std::uint64_t>::max();
  /// No write takes more at once.
  std::size_t longest_write = std::numeric_limits<std::size_t>::max();
  /// Writes take nothing and report no error, as some file systems do when they are full.
  bool writes_nothing = false;
  /// Folders cannot be exchanged: renameat2 returns EINVAL.
  bool no_exchange = false;
  /// Locks cannot be had: flock returns ENOLCK.
  bool no_locks = false;
  /// Files have no count of links: fstat gives 0.
  bool no_links = false;
  /// statvfs reports no end of space.
  bool promises_space = false;
  /// statvfs reports what file systems do that do not know their size.
  bool knows_no_size = false;
  /// No thread begins: pthread_create returns EAGAIN.
  bool no_threads = false;
  /// A new file whose path ends so is /dev/full.
  std::string full_file{};
};

/// Armed while it lives; one at a time.
class FaultyDisk {
 public:
  explicit FaultyDisk(DiskFault fault = {});
  FaultyDisk(const FaultyDisk&) = delete;
  FaultyDisk& operator=(const FaultyDisk&) = delete;
  ~FaultyDisk();

  /// The calls so far, such as "open PATH", "write PATH", "rename PATH PATH".
  [[nodiscard]] std::vector<std::string> calls() const;
};

}  // namespace looptorch::testing
