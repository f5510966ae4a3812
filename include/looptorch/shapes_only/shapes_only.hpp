// SPDX-License-Identifier: MIT
// Runs models of any size for what they allocate: shapes, order and number of all blocks are those of a real
// run on a CPU, but large blocks are virtual (virtual_blocks.hpp), and kernels that take long compute nothing
// (skipped_kernels.hpp). A training step of a model of 25 GB takes seconds, and looptorch::HostMemory counts
// what the real one would take. All numbers are meaningless.
#pragma once

#include "skipped_kernels.hpp"
#include "virtual_blocks.hpp"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <cstddef>
#include <optional>

namespace looptorch_bench {

/// What this thread does to virtual blocks computes nothing while an object of this type lives. Models that
/// are used then must have been made then. Make it before looptorch::HostMemory begins to count, and one at a
/// time.
class ShapesOnly {
 public:
  ShapesOnly() : through_(use_key()) { VirtualBlocks::installed().turn(true); }
  ~ShapesOnly() { VirtualBlocks::installed().turn(false); }
  ShapesOnly(const ShapesOnly&) = delete;
  ShapesOnly& operator=(const ShapesOnly&) = delete;

 private:
  /// Between autograd and the backends, free for uses like this one.
  static constexpr c10::DispatchKey kKey = c10::DispatchKey::Fake;

  static c10::DispatchKey use_key() {
    static torch::Library library = [] {
      torch::Library all(torch::Library::IMPL, "_", std::make_optional(kKey), __FILE__, __LINE__);
      all.fallback(torch::CppFunction::makeFromBoxedFunction<&ShapesOnly::call>());
      return all;
    }();
    return kKey;
  }

  static void call(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
    const Arguments arguments(*stack, op.schema().arguments().size());
    bool meets_virtual = false;
    for (std::size_t i = 0; i < arguments.size(); ++i)
      visit_tensors(arguments[i], [&](const at::Tensor& tensor) { meets_virtual |= is_virtual(tensor); });
    const auto skip = meets_virtual ? skipped_kernel(op.operator_name()) : nullptr;
    if (skip && skip(op, *stack, arguments)) return;
    op.redispatchBoxed(keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kKey), stack);
    if (meets_virtual) forget_numbers(*stack, op.schema().returns().size());
  }

  /// Sets what a real kernel computed from virtual blocks to 0, lest it be infinite.
  static void forget_numbers(Stack& stack, std::size_t results) {
    for (std::size_t i = stack.size() - results; i < stack.size(); ++i)
      visit_tensors(stack[i], [](const at::Tensor& tensor) {
        if (tensor.is_cpu() && tensor.is_floating_point() && !is_virtual(tensor)) tensor.detach().zero_();
      });
  }

  c10::impl::IncludeDispatchKeyGuard through_;
};

}  // namespace looptorch_bench
