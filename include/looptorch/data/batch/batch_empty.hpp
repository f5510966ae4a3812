// SPDX-License-Identifier: MIT
// Allocates the tensors of a batch that is being collated, in memory that is reused once no tensor refers to
// it. If the loader pins, the memory comes from LibTorch's pool of pinned memory, otherwise from the loader's
// own pool.
#pragma once

#include <looptorch/data/batch/batch_memory_pool.hpp>

#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <cstddef>
#include <memory>
#include <utility>

namespace looptorch {
namespace detail {

/// The slot into which this thread collates; `pool` is null where there is none.
struct OpenSlot {
  BatchMemoryPool* pool = nullptr;
  bool pins = false;
  std::size_t tensors = 0;  ///< handed out so far
};
inline thread_local OpenSlot open_slot;

/// Makes `batch_empty` on this thread return memory of one slot while it lives.
class SlotScope {
 public:
  SlotScope(BatchMemoryPool& pool, bool pins) : before_(std::exchange(open_slot, {&pool, pins})) {}
  SlotScope(const SlotScope&) = delete;
  SlotScope& operator=(const SlotScope&) = delete;
  ~SlotScope() { open_slot = before_; }

 private:
  OpenSlot before_;
};

/// Makes a pool whose memory comes from LibTorch's CPU allocator.
inline std::shared_ptr<BatchMemoryPool> make_batch_memory_pool() {
  return std::make_shared<BatchMemoryPool>([](std::size_t bytes) -> BatchMemoryPool::Memory {
    auto memory = std::make_shared<c10::DataPtr>(c10::GetCPUAllocator()->allocate(bytes));
    void* const data = memory->get();
    return {std::move(memory), data};
  });
}

/// Allocates from the open slot. Without one, as when a tensor is resized, uses LibTorch's CPU allocator.
class SlotAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    if (!open_slot.pool || bytes == 0) return c10::GetCPUAllocator()->allocate(bytes);
    BatchMemoryPool::Lease block = open_slot.pool->take(open_slot.tensors++, bytes);
    void* const data = block->data();
    return {data, block.release(), &return_to_pool, c10::Device(c10::kCPU)};
  }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

  static SlotAllocator& get() {
    static SlotAllocator allocator;
    return allocator;
  }

 private:
  static void return_to_pool(void* block) {
    BatchMemoryPool::ReturnToPool()(static_cast<BatchMemoryPool::Block*>(block));
  }
};

/// True if `options` need only plain memory.
inline bool needs_plain_memory(const at::TensorOptions& options) {
  return options.device().is_cpu() && options.layout() == at::kStrided && !options.pinned_memory() &&
         !options.requires_grad() && !c10::isQIntType(c10::typeMetaToScalarType(options.dtype()));
}

/// True if `at::empty` fills its memory with NaN, which reused memory would lack.
inline bool fills_empty() {
  const at::Context& context = at::globalContext();
  return context.deterministicAlgorithms() && context.deterministicFillUninitializedMemory();
}

}  // namespace detail

/// Returns an uninitialised tensor for a collate to fill. Its memory is the loader's reused or page-locked
/// memory, which saves an allocation or a copy. Outside a collate, returns what `at::empty` returns.
inline at::Tensor batch_empty(at::IntArrayRef sizes, const at::TensorOptions& options = {}) {
  if (detail::open_slot.pins) return at::empty(sizes, options.device(at::kCPU).pinned_memory(true));
  if (!detail::open_slot.pool || !detail::needs_plain_memory(options) || detail::fills_empty())
    return at::empty(sizes, options);
  return at::Tensor(at::detail::empty_generic(
      sizes, &detail::SlotAllocator::get(), c10::DispatchKeySet(c10::DispatchKey::CPU),
      c10::typeMetaToScalarType(options.dtype()), options.memory_format_opt()));
}

}  // namespace looptorch
