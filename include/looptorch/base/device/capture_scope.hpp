// SPDX-License-Identifier: MIT
// Tells whether a graph is being captured, and whether the captured work draws random numbers. While
// `is_open` nothing may be copied to the host. A device's generator cannot be read in a capture, so code that
// would save its state omits it if the work `draws_nothing`.
#pragma once

#include <atomic>

namespace looptorch::detail {

/// The current capture; a process has one at most.
class CaptureScope {
 public:
  /// `draws` is false if nothing that is captured draws random numbers.
  explicit CaptureScope(bool draws) { state() = draws ? kDraws : kDrawsNothing; }
  ~CaptureScope() { state() = kNone; }
  CaptureScope(const CaptureScope&) = delete;
  CaptureScope& operator=(const CaptureScope&) = delete;

  [[nodiscard]] static bool is_open() { return state() != kNone; }
  /// True in a capture of work that does not draw.
  [[nodiscard]] static bool draws_nothing() { return state() == kDrawsNothing; }

 private:
  enum State { kNone, kDraws, kDrawsNothing };
  static std::atomic<State>& state() {  // backward runs in LibTorch's threads
    static std::atomic<State> state = kNone;
    return state;
  }
};

}  // namespace looptorch::detail
