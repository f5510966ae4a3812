// SPDX-License-Identifier: MIT
// Locks a file between processes (flock), with a limit on the wait: if a process hangs while it holds the
// lock, the others do not wait for ever. A file system without locks is reported as a result, not as an
// error.
#pragma once

#include <sys/file.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <thread>

namespace looptorch::detail {

/// The longest wait for a lock before a process continues without it.
constexpr std::chrono::milliseconds kLockTimeout{2000};

/// Takes the lock LOCK_SH or LOCK_EX on an open file and waits for it at most `timeout`. Returns 0 or the
/// error: EWOULDBLOCK if another process holds the lock; ENOLCK, ENOSYS and others if the file system has no
/// locks.
inline int lock_file(int descriptor, int operation, std::chrono::milliseconds timeout = kLockTimeout) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + timeout;
  for (std::chrono::microseconds pause{20};; pause = std::min(2 * pause, std::chrono::microseconds(2000))) {
    if (::flock(descriptor, operation | LOCK_NB) == 0) return 0;
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK || Clock::now() >= end) return errno;
    std::this_thread::sleep_for(pause);
  }
}

/// Holds a lock until it is destroyed.
class FileLock {
 public:
  FileLock(int descriptor, int operation, std::chrono::milliseconds timeout = kLockTimeout)
      : error_(lock_file(descriptor, operation, timeout)), descriptor_(descriptor) {}
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;
  ~FileLock() {
    if (error_ == 0) ::flock(descriptor_, LOCK_UN);
  }

  /// Returns 0 if the lock is held, else the error that `lock_file` returned.
  [[nodiscard]] int error() const { return error_; }

 private:
  const int error_;
  const int descriptor_;
};

}  // namespace looptorch::detail
