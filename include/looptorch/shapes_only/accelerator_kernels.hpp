// SPDX-License-Identifier: MIT
// Makes ShapesOnly's kernels allocate what an accelerator's do where a CPU's do otherwise: dropout keeps a
// mask of bytes, not numbers of the input's type, and looptorch's own kernels for NVIDIA's GPUs take the
// place of tensor operations.
#pragma once

#include <looptorch/base/device/accelerator.hpp>
#include <looptorch/base/device/kernel_runner.hpp>
#include <looptorch/shapes_only/arguments.hpp>

#include <ATen/Functions.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <ATen/ops/dropout_native.h>
#include <c10/core/DispatchKey.h>
#include <torch/library.h>

#include <cstddef>
#include <tuple>
#include <utility>

namespace looptorch::detail::shapes {

/// Does at::dropout. LibTorch has a fused one for accelerators, which its CPU tensors do not get.
inline at::Tensor dropout(const at::Tensor& input, double p, bool train) {
  if (!cpu_stands_for_accelerator || !train || p <= 0 || p >= 1 || input.numel() == 0)
    return at::native::dropout(input, p, train);
  return std::get<0>(at::native_dropout(input, p, train));
}

/// Makes CPU tensors that stand for an accelerator's use its dropout, from the first call on.
inline void register_dropout() {
  static torch::Library library = [] {
    torch::Library aten(torch::Library::IMPL, "aten", c10::DispatchKey::AutogradCPU, __FILE__, __LINE__);
    aten.impl("dropout", &dropout);
    return aten;
  }();
}

inline bool allocate_dropout(const c10::OperatorHandle&, Stack&, const Arguments& arguments) {
  const at::Tensor input = arguments.tensor("input");
  const at::Tensor kept = at::zeros_like(input, input.options().dtype(at::kBool));
  arguments.return_results(at::zeros_like(input), kept);
  return true;
}

inline bool allocate_dropout_backward(const c10::OperatorHandle&, Stack&, const Arguments& arguments) {
  arguments.return_results(at::zeros_like(arguments.tensor("grad_output")));
  return true;
}

/// Stands for the runner of a device's kernels: they are all there, and compute nothing.
class SkippedRunner final : public KernelRunner {
 public:
  std::size_t prepare(const KernelSource&, c10::Device) override { return kLargeTable; }
  void launch(const KernelSource&, const char*, c10::Device, unsigned, const void*) override {}
};

/// Gives CPU tensors the kernels of NVIDIA's GPUs while it lives, if it is wanted.
class SkippedRunnerScope {
 public:
  explicit SkippedRunnerScope(bool wanted) : before_(own_kernel_runner(c10::kCPU)) {
    if (wanted) own_kernel_runner(c10::kCPU) = &runner_;
  }
  ~SkippedRunnerScope() { own_kernel_runner(c10::kCPU) = before_; }
  SkippedRunnerScope(const SkippedRunnerScope&) = delete;
  SkippedRunnerScope& operator=(const SkippedRunnerScope&) = delete;

 private:
  SkippedRunner runner_;
  KernelRunner* before_;
};

}  // namespace looptorch::detail::shapes
