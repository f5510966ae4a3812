// SPDX-License-Identifier: MIT
// Detects draws from LibTorch's default CPU generator, so that a loader can warn: if several workers draw
// from it, a sample gets different numbers in each run. Holds a copy of the generator's 2.5 KB of state.
#pragma once

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Generator.h>
#include <ATen/core/MT19937RNGEngine.h>

#include <mutex>

namespace looptorch::detail {

/// Watches the CPU's default generator from its construction on.
class GlobalRngCheck {
 public:
  GlobalRngCheck() : before_(state()) {}

  [[nodiscard]] bool any() const {
    const at::mt19937_data_pod now = state();
    return now.seed_ != before_.seed_ || now.left_ != before_.left_ || now.next_ != before_.next_ ||
           now.state_ != before_.state_;
  }

 private:
  static at::mt19937_data_pod state() {
    const at::Generator generator = at::detail::getDefaultCPUGenerator();
    auto* const cpu = at::check_generator<at::CPUGeneratorImpl>(generator);
    const std::lock_guard lock(cpu->mutex_);
    return cpu->engine().data();
  }

  const at::mt19937_data_pod before_;
};

}  // namespace looptorch::detail
