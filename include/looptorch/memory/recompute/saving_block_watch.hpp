// SPDX-License-Identifier: MIT
// Notices whether a forward pass runs a block that saves memory, such as a recomputed one. The loop then
// drops the casts of weights that autocast has made, since the block makes them anew in backward.
#pragma once

#include <utility>

namespace looptorch::detail {

/// Notices whether a block that saves memory begins on this thread while the watch lives.
class SavingBlockWatch {
 public:
  SavingBlockWatch() : outer_(std::exchange(innermost(), this)) {}
  ~SavingBlockWatch() { innermost() = outer_; }
  SavingBlockWatch(const SavingBlockWatch&) = delete;
  SavingBlockWatch& operator=(const SavingBlockWatch&) = delete;

  [[nodiscard]] bool saw_one() const { return saw_one_; }

  /// Notifies this thread's watches that a block begins.
  static void notify() {
    for (SavingBlockWatch* watch = innermost(); watch; watch = watch->outer_) watch->saw_one_ = true;
  }

 private:
  static SavingBlockWatch*& innermost() {
    thread_local SavingBlockWatch* watch = nullptr;
    return watch;
  }

  SavingBlockWatch* const outer_;
  bool saw_one_ = false;
};

}  // namespace looptorch::detail
