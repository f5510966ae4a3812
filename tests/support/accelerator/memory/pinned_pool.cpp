// SPDX-License-Identifier: MIT
// Implements PinnedPool: gives out blocks, and takes them back when no copy reads them any more.
#include "support/accelerator/memory/pinned_pool.hpp"

#include "support/accelerator/memory/arena.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <iterator>

namespace looptorch_test::accelerator {

HostBlock* PinnedPool::allocate(std::size_t bytes) {
  constexpr std::size_t kPageBytes = 4096;
  const std::size_t size = std::bit_ceil(std::max(bytes, kPageBytes));
  HostBlock* block = nullptr;
  if (auto& list = free_[size]; !list.empty()) {
    block = list.back();
    list.pop_back();
  } else {
    void* const data = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) return nullptr;
    auto& owner = blocks_[static_cast<char*>(data)];
    owner.reset(new HostBlock{.data = static_cast<char*>(data), .size = size, .recorded = {}});
    block = owner.get();
    poison(block->data, size);
  }
  block->live = true;
  block->requested = bytes;
  block->recorded.reset();
  bytes_in_use_ += static_cast<std::int64_t>(size);
  return block;
}

void PinnedPool::release(HostBlock& block) {
  block.live = false;
  bytes_in_use_ -= static_cast<std::int64_t>(block.size);
  if (block.readers == 0) recycle(block);
}

void PinnedPool::recycle(HostBlock& block) {
  poison(block.data, block.size);
  free_[block.size].push_back(&block);
}

HostBlock* PinnedPool::find(const void* address) const {
  const auto next = blocks_.upper_bound(static_cast<const char*>(address));
  if (next == blocks_.begin()) return nullptr;
  HostBlock* const block = std::prev(next)->second.get();
  return block->live && static_cast<const char*>(address) < block->end() ? block : nullptr;
}

}  // namespace looptorch_test::accelerator
