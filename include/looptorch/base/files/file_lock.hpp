// SPDX-License-Identifier: MIT
// Locks between processes (flock) that are waited for so long and no longer: a process that was stopped while
// it held one must not stop others, and a file system without locks is an answer, not an error.
#pragma once

#include <sys/file.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <thread>

namespace looptorch::detail {

/// How long a process that holds a lock may work before others do without.
constexpr std::chrono::milliseconds kLockPatience{2000};

/// Takes the lock LOCK_SH or LOCK_EX on an open file, waiting for it at most `patience`. Returns 0, or the
/// error: EWOULDBLOCK where another process holds it, ENOLCK, ENOSYS and others where it cannot be had.
inline int lock_file(int descriptor, int operation, std::chrono::milliseconds patience = kLockPatience) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + patience;
  for (std::chrono::microseconds pause{20};; pause = std::min(2 * pause, std::chrono::microseconds(2000))) {
    if (::flock(descriptor, operation | LOCK_NB) == 0) return 0;
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK || Clock::now() >= end) return errno;
    std::this_thread::sleep_for(pause);
  }
}

/// A lock of this process, given back at the end.
class FileLock {
 public:
  FileLock(int descriptor, int operation, std::chrono::milliseconds patience = kLockPatience)
      : error_(lock_file(descriptor, operation, patience)), descriptor_(descriptor) {}
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;
  ~FileLock() {
    if (error_ == 0) ::flock(descriptor_, LOCK_UN);
  }

  /// 0 where the lock is held, else the reason as `lock_file` gives it.
  [[nodiscard]] int error() const { return error_; }

 private:
  const int error_;
  const int descriptor_;
};

}  // namespace looptorch::detail
