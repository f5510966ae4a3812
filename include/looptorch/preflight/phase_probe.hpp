// SPDX-License-Identifier: MIT
// Measures the memory of a preflight's dry steps by phase, without a policy such as WatchMemory. The backward
// phase begins with the first backward function that LibTorch reports.
#pragma once

#include <looptorch/memory/measure/memory_counter.hpp>
#include <looptorch/memory/measure/memory_phases.hpp>

#include <ATen/record_function.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

namespace looptorch::detail {

/// The phases of dry steps. One lives at a time.
class PhaseProbe {
 public:
  explicit PhaseProbe(MemoryCounter& counter) : counter_(counter) {
    counter_.reset_peak();
    phases_.begin(counter_.read());
    active() = this;
    callback_ = at::addGlobalCallback(
        at::RecordFunctionCallback(&PhaseProbe::on_backward).scopes({at::RecordScope::BACKWARD_FUNCTION}));
  }
  ~PhaseProbe() {
    at::removeCallback(callback_);
    active() = nullptr;
  }
  PhaseProbe(const PhaseProbe&) = delete;
  PhaseProbe& operator=(const PhaseProbe&) = delete;

  void enter(MemoryPhase phase) {
    in_forward_ = phase == MemoryPhase::forward;
    phases_.enter(phase, counter_.take(), step_);
  }
  void end_window() { phases_.end_window(counter_.take(), step_++); }
  [[nodiscard]] const MemoryPhases& phases() const { return phases_; }

 private:
  static std::atomic<PhaseProbe*>& active() {
    static std::atomic<PhaseProbe*> probe = nullptr;
    return probe;
  }
  /// Runs in the autograd thread, while the step's thread waits.
  static std::unique_ptr<at::ObserverContext> on_backward(const at::RecordFunction&) {
    PhaseProbe* const probe = active();
    if (probe && probe->in_forward_.exchange(false)) probe->enter(MemoryPhase::backward);
    return nullptr;
  }

  MemoryCounter& counter_;
  MemoryPhases phases_;
  at::CallbackHandle callback_ = at::INVALID_CALLBACK_HANDLE;
  std::atomic<bool> in_forward_ = false;
  std::int64_t step_ = 0;
};

}  // namespace looptorch::detail
