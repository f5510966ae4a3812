// SPDX-License-Identifier: MIT
// Whether LibTorch's default generator was drawn from: where several workers do, each run shares its numbers
// out among the samples in another way. Two copies of its 5 KB of state.
#pragma once

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstring>
#include <mutex>

namespace looptorch::detail {

/// Watches the CPU's default generator from its construction on.
class DefaultDraws {
 public:
  DefaultDraws() : before_(state()) {}

  [[nodiscard]] bool any() const {
    const at::Tensor now = state();
    return std::memcmp(now.const_data_ptr(), before_.const_data_ptr(), now.nbytes()) != 0;
  }

 private:
  static at::Tensor state() {
    at::Generator generator = at::detail::getDefaultCPUGenerator();
    const std::lock_guard lock(generator.mutex());
    return generator.get_state();
  }

  const at::Tensor before_;
};

}  // namespace looptorch::detail
