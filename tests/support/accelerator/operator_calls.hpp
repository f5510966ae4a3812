// SPDX-License-Identifier: MIT
// Counts the operators that a program calls, as a profile of the program on CUDA would. Includes operators
// that composite ones call; excludes those that the simulated accelerator calls within an operator for which
// CUDA has a kernel. Needs a LibTorch that was built for CUDA, whose registrations say which operators are
// kernels there.
#pragma once

#include <ATen/record_function.h>

#include <cstdint>
#include <map>
#include <string>

namespace looptorch_test::accelerator {

/// Counts the calls of all threads while it lives; one at a time.
class CountOperatorCalls {
 public:
  /// True if this LibTorch has CUDA's operators.
  [[nodiscard]] static bool is_supported();

  CountOperatorCalls();
  ~CountOperatorCalls();
  CountOperatorCalls(const CountOperatorCalls&) = delete;
  CountOperatorCalls& operator=(const CountOperatorCalls&) = delete;

  [[nodiscard]] std::int64_t total() const;
  /// Returns how often each was called: "aten::add.Tensor".
  [[nodiscard]] std::map<std::string, std::int64_t> by_name() const;

 private:
  at::CallbackHandle handle_;
};

}  // namespace looptorch_test::accelerator
