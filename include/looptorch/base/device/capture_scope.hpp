// SPDX-License-Identifier: MIT
// Marks that this process is capturing a CUDA graph. A capture forbids copies to the host and reading a
// device's random generator, so code that does either checks `CaptureScope` first. If the captured work draws
// no random numbers (`draws_nothing`), recomputed layers leave the generator's state out.
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
