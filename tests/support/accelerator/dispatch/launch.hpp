// SPDX-License-Identifier: MIT
// Launches a kernel on the current stream of a simulated device: checks its accesses, and computes at once on
// the CPU. If the device runs behind the host, the kernel computes again when its turn comes, on the copy of
// the memory that a real device would have.
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
