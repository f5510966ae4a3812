// SPDX-License-Identifier: MIT
// Memory for a batch that is collated: the loader's slots, which are given out again once no tensor holds
// them. Where the loader pins, these are blocks of LibTorch's pool of pinned memory, which also learns by
// events when every copy from them is done; elsewhere the loader has a pool of its own.
#pragma once

#include <looptorch/data/slot_pool.hpp>

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

/// The slot into which this thread collates; none where there is no pool.
struct OpenSlot {
  SlotPool* pool = nullptr;
  bool pins = false;
  std::size_t tensors = 0;  ///< that it holds so far
};
inline thread_local OpenSlot open_slot;

/// While it lives, `batch_empty` on this thread gives memory of one slot.
class SlotScope {
 public:
  SlotScope(SlotPool& pool, bool pins) : before_(std::exchange(open_slot, {&pool, pins})) {}
  SlotScope(const SlotScope&) = delete;
  SlotScope& operator=(const SlotScope&) = delete;
  ~SlotScope() { open_slot = before_; }

 private:
  OpenSlot before_;
};

/// A pool whose memory is that of LibTorch's tensors.
inline std::shared_ptr<SlotPool> make_slot_pool() {
  return std::make_shared<SlotPool>([](std::size_t bytes) -> SlotPool::Memory {
    auto memory = std::make_shared<c10::DataPtr>(c10::GetCPUAllocator()->allocate(bytes));
    void* const data = memory->get();
    return {std::move(memory), data};
  });
}

/// Gives the memory of the open slot; that of any tensor where none is open, as for one that is resized.
class SlotAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    if (!open_slot.pool || bytes == 0) return c10::GetCPUAllocator()->allocate(bytes);
    SlotPool::Lease block = open_slot.pool->take(open_slot.tensors++, bytes);
    void* const data = block->data();
    return {data, block.release(), &give_back, c10::Device(c10::kCPU)};
  }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

  static SlotAllocator& get() {
    static SlotAllocator allocator;
    return allocator;
  }

 private:
  static void give_back(void* block) { SlotPool::GiveBack()(static_cast<SlotPool::Block*>(block)); }
};

/// True where `options` ask for no more than plain memory.
inline bool is_plain(const at::TensorOptions& options) {
  return options.device().is_cpu() && options.layout() == at::kStrided && !options.pinned_memory() &&
         !options.requires_grad() && !c10::isQIntType(c10::typeMetaToScalarType(options.dtype()));
}

/// True where `at::empty` fills what it gives with NaN, which used memory does not have.
inline bool fills_empty() {
  const at::Context& context = at::globalContext();
  return context.deterministicAlgorithms() && context.deterministicFillUninitializedMemory();
}

}  // namespace detail

/// A tensor without values for a collate to fill, in the loader's reused memory, page-locked where it pins:
/// `at::empty` with one copy or one allocation less. Outside a collate it is `at::empty` itself.
inline at::Tensor batch_empty(at::IntArrayRef sizes, const at::TensorOptions& options = {}) {
  if (detail::open_slot.pins) return at::empty(sizes, options.device(at::kCPU).pinned_memory(true));
  if (!detail::open_slot.pool || !detail::is_plain(options) || detail::fills_empty())
    return at::empty(sizes, options);
  return at::Tensor(at::detail::empty_generic(
      sizes, &detail::SlotAllocator::get(), c10::DispatchKeySet(c10::DispatchKey::CPU),
      c10::typeMetaToScalarType(options.dtype()), options.memory_format_opt()));
}

}  // namespace looptorch
