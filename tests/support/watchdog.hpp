// SPDX-License-Identifier: MIT
// Turns a hang into a failure: a Watchdog aborts the process with a message once its time is up.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

namespace looptorch::testing {

class Watchdog {
 public:
  explicit Watchdog(std::string what, std::chrono::milliseconds limit = std::chrono::seconds(20))
      : what_(std::move(what)), thread_([this, limit] { watch(limit); }) {}
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;
  ~Watchdog() {
    {
      const std::lock_guard lock(mutex_);
      done_ = true;
    }
    finished_.notify_one();
    thread_.join();
  }

 private:
  void watch(std::chrono::milliseconds limit) {
    std::unique_lock lock(mutex_);
    // Waits on the system clock, since ThreadSanitizer of g++ 12 does not know pthread_cond_clockwait.
    if (finished_.wait_until(lock, std::chrono::system_clock::now() + limit, [this] { return done_; }))
      return;
    std::fprintf(stderr, "watchdog: %s hung for more than %lld ms\n", what_.c_str(),
                 static_cast<long long>(limit.count()));
    std::abort();
  }

  const std::string what_;
  std::mutex mutex_;
  std::condition_variable finished_;
  bool done_ = false;
  std::thread thread_;  // last: it uses the members above
};

}  // namespace looptorch::testing
