// SPDX-License-Identifier: MIT
// Launches a kernel on the current stream of a device: checks its accesses, and computes on the CPU at once.
// If the device is to run behind the host, computes again on the device's own copy of memory when the
// kernel's turn comes.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace looptorch_test::accelerator {

struct Operand {
  at::Tensor tensor;
  bool writes = false;
};

struct Kernel {
  std::string name;
  c10::Device device;
  bool host_needs_result = false;  // so that it waits for the stream, and the kernel runs once
  std::int64_t launches_on_cuda = 1;
};

/// Computes the results from CPU tensors in place of the operands, in their order.
using Compute = std::function<torch::jit::Stack(const std::vector<at::Tensor>& operands)>;

/// Returns what `compute` returns, with tensors of the device. Operands whose size the kernel changes change,
/// too.
torch::jit::Stack launch(const Kernel& kernel, const std::vector<Operand>& operands, const Compute& compute);

}  // namespace looptorch_test::accelerator
