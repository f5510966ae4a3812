// SPDX-License-Identifier: MIT
// Lets threads take turns in a given order, so that several workers can read one stream. Includes no header
// of LibTorch.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace looptorch::detail {

/// The time that this thread has waited for its turns. The caller that measures its work resets it.
inline thread_local std::chrono::steady_clock::duration turn_wait{};

/// Admits the numbers first, first + 1, ... one at a time, in this order. Each must come exactly once, from a
/// thread that holds no other turn.
class TurnLock {
 public:
  explicit TurnLock(std::int64_t first) : next_(first) {}

  /// Held by the thread whose turn it is.
  class Turn {
   public:
    explicit Turn(TurnLock& turns) : turns_(turns) {}
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    ~Turn() { turns_.pass(); }

   private:
    TurnLock& turns_;
  };

  /// Waits until all smaller numbers have had their turn.
  [[nodiscard]] Turn wait_for(std::int64_t number) {
    const auto begin = std::chrono::steady_clock::now();
    std::unique_lock lock(mutex_);
    passed_.wait(lock, [this, number] { return next_ == number; });
    turn_wait += std::chrono::steady_clock::now() - begin;
    return Turn(*this);
  }

 private:
  void pass() {
    {
      const std::lock_guard lock(mutex_);
      ++next_;
    }
    passed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable passed_;
  std::int64_t next_;
};

}  // namespace looptorch::detail
