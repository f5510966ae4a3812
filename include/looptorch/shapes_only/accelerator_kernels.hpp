// SPDX-License-Identifier: MIT
// Makes ShapesOnly allocate as an accelerator does where the CPU's kernels differ: dropout keeps a mask of
// bytes, not numbers of the input's type, and looptorch's CUDA kernels replace tensor operations.
#pragma once

#include <looptorch/base/device/accelerator.hpp>
#include <looptorch/base/device/kernel_runner.hpp>
#include <looptorch/shapes_only/arguments.hpp>

#include <ATen/Functions.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <ATen/ops/dropout_native.h>
#include <c10/core/DispatchKey.h>
#include <c10/util/SmallVector.h>
#include <torch/library.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <tuple>
#include <utility>

namespace looptorch::detail::shapes {

/// Computes at::dropout. For a simulated accelerator, runs the fused operator that LibTorch has for them.
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

/// True if an accelerator runs the operator as one kernel. Composite operators call such operators; they
/// themselves allocate only numbers on the host, as the 2 of `x * 2`. Dropout counts as composite, since it
/// allocates its mask before its result.
[[nodiscard]] inline bool is_kernel(const c10::OperatorHandle& op, const Arguments& arguments, bool skipped) {
  const std::string& name = op.schema().name();
  if (name == "aten::scalar_tensor") return !arguments.named("device").isNone();
  if (name == "aten::native_dropout") return false;
  return skipped || op.hasKernelForDispatchKey(c10::DispatchKey::CPU) ||
         name.starts_with("aten::_foreach_") || name == "aten::convolution" ||
         name == "aten::convolution_backward";
}

/// Counts an operator's results as blocks of the simulated device. Other memory does not count: what the
/// CPU's kernel allocates besides would not exist there, nor what the program allocates without an operator.
class KernelOnDevice {
 public:
  explicit KernelOnDevice(const Arguments& arguments) : before_(std::exchange(runs_, true)) {
    for (std::size_t i = 0; i < arguments.size(); ++i)
      visit_tensors(arguments[i], [&](const at::Tensor& tensor) { (void)is_new(tensor); });
  }
  ~KernelOnDevice() { runs_ = before_; }
  KernelOnDevice(const KernelOnDevice&) = delete;
  KernelOnDevice& operator=(const KernelOnDevice&) = delete;

  /// True on a thread on which a kernel runs.
  [[nodiscard]] static bool runs() { return runs_; }

  /// Counts the last tensors of the stack, except those in memory of arguments.
  void count_results(const Stack& stack, std::size_t results) {
    for (std::size_t i = stack.size() - results; i < stack.size(); ++i)
      visit_tensors(stack[i], [&](const at::Tensor& tensor) {
        if (is_new(tensor))
          VirtualBlocks::installed().count_on_device(tensor.storage().data_ptr(), tensor.storage().nbytes());
      });
  }

 private:
  /// True for a tensor whose memory no earlier tensor had.
  [[nodiscard]] bool is_new(const at::Tensor& tensor) {
    if (!tensor.has_storage()) return false;
    const void* const data = tensor.storage().data();
    if (std::find(known_.begin(), known_.end(), data) != known_.end()) return false;
    known_.push_back(data);
    return true;
  }

  static inline thread_local bool runs_ = false;
  bool before_;
  c10::SmallVector<const void*, 8> known_;
};

/// Simulates the runner of a device's kernels: accepts every kernel, and computes nothing.
class SkippedRunner final : public KernelRunner {
 public:
  std::size_t prepare(const KernelSource&, c10::Device) override { return kLargeTable; }
  void launch(const KernelSource&, const char*, c10::Device, unsigned, const void*) override {}
};

/// Lets CPU tensors take the kernels of NVIDIA's GPUs while it lives, if asked to.
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
