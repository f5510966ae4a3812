// SPDX-License-Identifier: MIT
// Runs models of any size to measure their allocations, as FakeTensor mode or the meta device do in Python.
// Shapes, order and number of all blocks are those of a real run on a CPU, but large blocks are virtual
// (virtual_blocks.hpp), and slow kernels compute nothing (skipped_kernels.hpp). A training step of a model of
// 25 GB takes seconds, and HostMemory counts what the real one would take. The
// values in tensors are meaningless; their sizes and the counts of memory are true.
//
//   const lt::ShapesOnly shapes_only;
//   Net net;                                // of any size
//   lt::Trainer trainer(net, optimizer, objective);
//   std::int64_t needed = lt::preflight(trainer, batches, {.cap = 1'000'000'000'000}).needed;
#pragma once

#include <looptorch/base/device/accelerator.hpp>
#include <looptorch/optim/narrow/lanes.hpp>
#include <looptorch/shapes_only/arguments.hpp>
#include <looptorch/shapes_only/device_pool.hpp>
#include <looptorch/shapes_only/skipped_kernels.hpp>
#include <looptorch/shapes_only/virtual_blocks.hpp>
#include <looptorch/shapes_only/workspace.hpp>

#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <atomic>
#include <cstddef>
#include <optional>

namespace looptorch {

/// The device that is imitated. Kernels are always the CPU's. For an accelerator their workspaces, as copies
/// in other layouts or types, are not counted, and the unused blocks of its allocator are.
enum class ShapesOf { cpu, accelerator };

/// Makes this thread's operations on virtual blocks compute nothing while it lives. Meanwhile LibTorch has
/// one thread, and large loops are skipped in the whole process.
/// - Make one at a time.
/// - Make the models that it measures while it lives, on a CPU.
class ShapesOnly {
 public:
  explicit ShapesOnly(ShapesOf device = ShapesOf::cpu) : through_(use_key()) {
    detail::shapes::VirtualBlocks::installed().set_on(true);
    detail::shapes::counted = {.workspaces = device == ShapesOf::cpu, .threads = threads_};
    if (device == ShapesOf::accelerator) detail::shapes::VirtualBlocks::installed().stand_for(&pool_);
    detail::cpu_stands_for_accelerator = device == ShapesOf::accelerator;
    detail::loops_are_skipped.store(true, std::memory_order_relaxed);
    at::set_num_threads(1);
  }
  ~ShapesOnly() {
    at::set_num_threads(threads_);
    detail::loops_are_skipped.store(false, std::memory_order_relaxed);
    detail::cpu_stands_for_accelerator = false;
    detail::shapes::VirtualBlocks::installed().stand_for(nullptr);
    detail::shapes::VirtualBlocks::installed().set_on(false);
  }
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

  static void call(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
    const detail::shapes::Arguments arguments(op, *stack);
    bool meets_virtual = false;
    for (std::size_t i = 0; i < arguments.size(); ++i)
      detail::shapes::visit_tensors(arguments[i], [&](const at::Tensor& tensor) {
        meets_virtual |= detail::shapes::is_virtual(tensor);
      });
    const auto skip = meets_virtual ? detail::shapes::skipped_kernel(op.operator_name()) : nullptr;
    if (skip && skip(op, *stack, arguments)) return;
    const detail::shapes::RealBlocksScope blocks(makes_integers(arguments));
    op.redispatchBoxed(keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kKey), stack);
    if (meets_virtual) zero_results(*stack, op.schema().returns().size());
  }

  /// True for a call whose result has an integer type that steers kernels, or comes from those only.
  static bool makes_integers(const detail::shapes::Arguments& arguments) {
    bool takes_tensors = false, takes_integers_alone = true;
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      if (arguments[i].isInt() && arguments.name(i) == "dtype")
        return detail::shapes::steers(arguments[i].toScalarType(), /*counts_bool=*/false);
      detail::shapes::visit_tensors(arguments[i], [&](const at::Tensor& tensor) {
        takes_tensors = true;
        takes_integers_alone &= detail::shapes::steers(tensor.scalar_type(), /*counts_bool=*/true);
      });
    }
    return takes_tensors ? takes_integers_alone : detail::shapes::RealBlocksScope::are_real();
  }

  /// Zeroes what a real kernel computed from virtual blocks, which might be infinite.
  static void zero_results(torch::jit::Stack& stack, std::size_t results) {
    for (std::size_t i = stack.size() - results; i < stack.size(); ++i)
      detail::shapes::visit_tensors(stack[i], [](const at::Tensor& tensor) {
        if (tensor.is_cpu() && tensor.is_floating_point() && !detail::shapes::is_virtual(tensor))
          tensor.detach().zero_();
      });
  }

  detail::shapes::DevicePool pool_;
  c10::impl::IncludeDispatchKeyGuard through_;
  int threads_ = at::get_num_threads();  // more would wait for each other: there is nothing to compute
};

}  // namespace looptorch
