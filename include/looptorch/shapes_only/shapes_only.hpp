// SPDX-License-Identifier: MIT
// Runs a model of any size to measure what it allocates, as FakeTensor mode or the meta device do in Python.
// While a ShapesOnly lives, the CPU's allocator gives virtual memory for large blocks (virtual_blocks.hpp),
// and a dispatch key intercepts each operator, so that slow kernels only allocate (skipped_kernels.hpp).
// Sizes, order and number of blocks are those of a real run, and HostMemory counts them. Numbers in large
// tensors are meaningless. Indices and masks computed from them are zeros, so a selection by such a mask is
// empty. Solvers accept singular matrices. A training step of a model of 25 GB takes seconds.
//
//   const lt::ShapesOnly shapes_only;
//   Net net;                                // of any size
//   lt::Trainer trainer(net, optimizer, objective);
//   std::int64_t needed = lt::preflight(trainer, batches, {.cap = 1'000'000'000'000}).needed;
//
// Read next: virtual_blocks.hpp, skipped_kernels.hpp, then arithmetic.hpp. The headers accelerator_* have
// what an accelerator does differently.
#pragma once

#include <looptorch/base/device/accelerator.hpp>
#include <looptorch/optim/narrow/block_loop.hpp>
#include <looptorch/shapes_only/accelerator_autocast.hpp>
#include <looptorch/shapes_only/accelerator_kernels.hpp>
#include <looptorch/shapes_only/arguments.hpp>
#include <looptorch/shapes_only/device_pool.hpp>
#include <looptorch/shapes_only/skipped_kernels.hpp>
#include <looptorch/shapes_only/virtual_blocks.hpp>
#include <looptorch/shapes_only/workspace.hpp>

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <atomic>
#include <cstddef>
#include <optional>

namespace looptorch {

/// The device whose memory is measured. Kernels are always the CPU's. For an accelerator, the unused blocks
/// of its allocator count, and the kernels' workspaces, such as copies in other layouts or types, do not.
/// `cuda` is an accelerator with looptorch's own kernels.
enum class ShapesOf { cpu, accelerator, cuda };

/// Returns the setting that measures for a device like this one.
[[nodiscard]] inline ShapesOf shapes_of(at::Device device) {
  if (device.is_cpu()) return ShapesOf::cpu;
  return device.is_cuda() && !at::globalContext().hasROCM() ? ShapesOf::cuda : ShapesOf::accelerator;
}

/// Makes this thread's operations on virtual blocks compute nothing while it lives. Meanwhile LibTorch has
/// one thread, and large loops are skipped in the whole process.
/// - Make one at a time.
/// - Make the models that it measures while it lives, on a CPU.
class ShapesOnly {
 public:
  explicit ShapesOnly(ShapesOf device = ShapesOf::cpu)
      : runner_(device == ShapesOf::cuda), intercepts_(register_fallback()) {
    detail::shapes::register_dropout();
    detail::shapes::register_fp32_operators();
    detail::shapes::VirtualBlocks::installed().set_on(true);
    detail::shapes::counted_run = {.workspaces = device == ShapesOf::cpu, .threads = threads_};
    if (device != ShapesOf::cpu) detail::shapes::VirtualBlocks::installed().count_as(&pool_);
    detail::cpu_stands_for_accelerator = device != ShapesOf::cpu;
    detail::loops_are_skipped.store(true, std::memory_order_relaxed);
    at::set_num_threads(1);
  }
  ~ShapesOnly() {
    at::set_num_threads(threads_);
    detail::loops_are_skipped.store(false, std::memory_order_relaxed);
    detail::cpu_stands_for_accelerator = false;
    detail::shapes::VirtualBlocks::installed().count_as(nullptr);
    detail::shapes::VirtualBlocks::installed().set_on(false);
  }
  ShapesOnly(const ShapesOnly&) = delete;
  ShapesOnly& operator=(const ShapesOnly&) = delete;

 private:
  /// Lies between autograd and the backends, and LibTorch itself does not use it.
  static constexpr c10::DispatchKey kKey = c10::DispatchKey::Fake;

  /// Registers `dispatch` once, for all operators but views, which allocate nothing; returns its key.
  static c10::DispatchKey register_fallback() {
    static torch::Library library = [] {
      torch::Library all(torch::Library::IMPL, "_", std::make_optional(kKey), __FILE__, __LINE__);
      all.fallback(torch::CppFunction::makeFromBoxedFunction<&ShapesOnly::dispatch>());
      return all;
    }();
    static torch::Library views = [] {
      torch::Library aten(torch::Library::IMPL, "aten", std::make_optional(kKey), __FILE__, __LINE__);
      for (const char* view :
           {"_reshape_alias", "_unsafe_view", "alias", "as_strided", "detach", "expand", "permute",
            "select.int", "slice.Tensor", "squeeze.dim", "t", "transpose.int", "unsqueeze", "view"})
        aten.impl(view, torch::CppFunction::makeFallthrough());
      aten.impl("_linalg_check_errors", torch::CppFunction::makeFromBoxedFunction<&ShapesOnly::accept>());
      return aten;
    }();
    return kKey;
  }

  /// An operator's call.
  struct Call {
    const c10::OperatorHandle& op;
    c10::DispatchKeySet keys;
    torch::jit::Stack& stack;
    detail::shapes::Arguments arguments;
    bool meets_virtual = false, takes_integers = false;
    detail::shapes::SkippedKernel skipped = nullptr;  ///< Takes the kernel's place; null: none.

    [[nodiscard]] std::size_t results() const { return op.schema().returns().size(); }
  };

  /// Replaces a solver's check for errors: matrices of zeros, which are singular, are accepted.
  static void accept(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
    torch::jit::drop(*stack, op.schema().arguments().size());
  }

  /// Handles each call of an operator on this thread.
  static void dispatch(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
    using namespace detail::shapes;
    Call call{op, keys, *stack, Arguments(op, *stack)};
    for (std::size_t i = 0; i < call.arguments.size(); ++i)
      visit_tensors(call.arguments[i], [&](const at::Tensor& tensor) {
        call.meets_virtual |= is_virtual(tensor);
        call.takes_integers |= steers_kernels(tensor.scalar_type());
      });
    const SkippedKernel skipped = skipped_kernel(op.operator_name());
    call.meets_virtual |= skipped == &allocate_matmul && makes_virtual_matmul(call.arguments);
    if (call.meets_virtual) call.skipped = skipped;
    if (!detail::cpu_stands_for_accelerator || KernelOnDevice::runs() ||
        !is_kernel(op, call.arguments, call.skipped))
      return run(call);
    KernelOnDevice kernel(call.arguments);
    run(call);
    kernel.count_results(*stack, call.results());
  }

  static void run(const Call& call) {
    if (call.skipped && call.skipped(call.op, call.stack, call.arguments)) return;
    const detail::shapes::RealBlocksScope blocks(makes_integers(call.arguments));
    call.op.redispatchBoxed(call.keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kKey),
                            &call.stack);
    zero_integers(call.stack, call.results());
    if (call.meets_virtual || call.op.schema().name().starts_with("aten::empty"))
      zero_results(call.stack, call.results(), call.meets_virtual && !call.takes_integers);
  }

  /// True for a call that makes integers or masks, or whose tensors are all of such types.
  static bool makes_integers(const detail::shapes::Arguments& arguments) {
    bool takes_tensors = false, takes_integers_alone = true;
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      if (arguments[i].isInt() && arguments.name(i) == "dtype")
        return detail::shapes::steers_kernels(arguments[i].toScalarType());
      detail::shapes::visit_tensors(arguments[i], [&](const at::Tensor& tensor) {
        takes_tensors = true;
        takes_integers_alone &= detail::shapes::steers_kernels(tensor.scalar_type());
      });
    }
    return takes_tensors ? takes_integers_alone : detail::shapes::RealBlocksScope::are_real();
  }

  /// Replaces the memory of indices and masks that a real kernel wrote to virtual blocks: other blocks have
  /// overwritten them, and later kernels read there. Frees it first, so that it counts once.
  static void zero_integers(torch::jit::Stack& stack, std::size_t results) {
    using namespace detail::shapes;
    for (std::size_t i = stack.size() - results; i < stack.size(); ++i)
      visit_tensors(stack[i], [](const at::Tensor& tensor) {
        if (!tensor.is_cpu() || !tensor.has_storage()) return;
        if (!steers_kernels(tensor.scalar_type())) return;
        c10::StorageImpl& storage = *tensor.storage().unsafeGetStorageImpl();
        if (storage.nbytes() < VirtualBlocks::kLeast ||
            !VirtualBlocks::installed().has_virtual(storage.data_ptr()))
          return;
        const RealBlocksScope zeros(true);
        storage.set_data_ptr_noswap({});
        storage.set_data_ptr_noswap(c10::GetCPUAllocator()->allocate(storage.nbytes()));
      });
  }

  /// Zeroes what a real kernel computed from virtual blocks, which might be infinite, and what a kernel that
  /// computes nothing would have filled. With `integers` also small indices and masks: `zero_integers` does
  /// the large ones.
  static void zero_results(torch::jit::Stack& stack, std::size_t results, bool integers) {
    using namespace detail::shapes;
    for (std::size_t i = stack.size() - results; i < stack.size(); ++i)
      visit_tensors(stack[i], [&](const at::Tensor& tensor) {
        if (!tensor.is_cpu() || !tensor.has_storage() || is_virtual(tensor)) return;
        if (tensor.is_floating_point() || (integers && tensor.storage().nbytes() < VirtualBlocks::kLeast))
          tensor.detach().zero_();
      });
  }

  detail::shapes::DevicePool pool_;
  detail::shapes::SkippedRunnerScope runner_;
  c10::impl::IncludeDispatchKeyGuard intercepts_;
  int threads_ = at::get_num_threads();  // more would wait for each other: there is nothing to compute
};

}  // namespace looptorch
