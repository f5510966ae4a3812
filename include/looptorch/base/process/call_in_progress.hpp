// SPDX-License-Identifier: MIT
// Refuses a call such as `fit` or `step` while another call of the same Trainer is in progress. Such a call,
// from a hook, an objective or another thread, throws UsageError, since it would overwrite the first call's
// plan, window or counters. Evaluations may be nested.
#pragma once

#include <looptorch/base/error.hpp>

#include <utility>

namespace looptorch::detail {

class CallInProgress {
 public:
  /// Marks a call as under way while it lives.
  class Scope {
   public:
    Scope(CallInProgress& of, const char* call, bool evaluates)
        : of_(of),
          outer_(std::exchange(of.call_, call)),
          evaluated_(std::exchange(of.evaluates_, evaluates)) {}
    ~Scope() { of_.call_ = outer_, of_.evaluates_ = evaluated_; }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    CallInProgress& of_;
    const char* outer_;
    bool evaluated_;
  };

  /// Begins `call`. Throws UsageError within another.
  [[nodiscard]] Scope begin(const char* call) {
    if (call_)
      throw UsageError(message(call, " was called within ", call_,
                               " of the same Trainer, by a hook, an objective or another thread: call it "
                               "after that has returned"));
    return {*this, call, false};
  }
  /// Begins `call`, an evaluation, which may be nested in another call. Messages name the outermost
  /// evaluation.
  [[nodiscard]] Scope evaluate(const char* call) { return {*this, evaluates_ ? call_ : call, true}; }

  /// Throws UsageError during an evaluation, when averages may have replaced the weights.
  void require_own_weights(const char* call) const {
    if (evaluates_)
      throw UsageError(
          message(call, " was called within ", call_, " of the same Trainer: call it after that"));
  }

  [[nodiscard]] bool under_way() const { return call_ != nullptr; }

 private:
  const char* call_ = nullptr;
  bool evaluates_ = false;
};

}  // namespace looptorch::detail
