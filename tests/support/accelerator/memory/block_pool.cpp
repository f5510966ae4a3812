// SPDX-License-Identifier: MIT
// Implements BlockPool: finds, splits and joins blocks as CUDA's caching allocator does, and keeps its
// statistics.
#include "support/accelerator/memory/block_pool.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

namespace looptorch_test::accelerator {

namespace {
constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr std::size_t kMinBlock = 512;
constexpr std::size_t kSmall = kMiB;  // the largest that is small
constexpr std::size_t kSmallSegment = 2 * kMiB;
constexpr std::size_t kLargeSegment = 20 * kMiB;
constexpr std::size_t kMinOwnSegment = 10 * kMiB;

constexpr std::size_t round_up(std::size_t bytes, std::size_t step) {
  return (bytes + step - 1) / step * step;
}
}  // namespace

std::size_t BlockPool::rounded(std::size_t bytes) { return std::max(kMinBlock, round_up(bytes, kMinBlock)); }

std::size_t BlockPool::segment_size(std::size_t rounded) {
  if (rounded <= kSmall) return kSmallSegment;
  return rounded < kMinOwnSegment ? kLargeSegment : round_up(rounded, kSmallSegment);
}

/// Applies a change to the statistics of all blocks and to those of the pool.
template <class Change>
void BlockPool::change(bool small, const Change& change) {
  change(std::size_t{0});
  change(small ? std::size_t{1} : std::size_t{2});
}

/// Free parts of a segment that is otherwise in use.
void BlockPool::count_inactive(const Block& block, bool adds) {
  if (!block.reusable || !block.is_split()) return;
  change(block.small, [&](std::size_t i) {
    auto &count = stats_.inactive_split[i], &bytes = stats_.inactive_split_bytes[i];
    adds ? count.increase(1) : count.decrease(1);
    adds ? bytes.increase(block.size) : bytes.decrease(block.size);
  });
}

Block* BlockPool::take_free(int stream, std::size_t size, bool small) {
  Block wanted{
      .data = nullptr, .size = size, .stream = stream, .small = small, .accesses = {}, .recorded = {}};
  const auto found = free_.lower_bound(&wanted);
  if (found == free_.end() || (*found)->stream != stream || (*found)->small != small) return nullptr;
  Block* const block = *found;
  free_.erase(found);
  count_inactive(*block, false);
  return block;
}

Block* BlockPool::take_segment(int stream, std::size_t size, bool small) {
  const std::size_t bytes = segment_size(size);
  if (reserved() + bytes > capacity()) return nullptr;
  char* const data = arena_.reserve(bytes);
  if (!data) return nullptr;
  auto& block = blocks_[data];
  block.reset(new Block{
      .data = data, .size = bytes, .stream = stream, .small = small, .accesses = {}, .recorded = {}});
  change(small, [&](std::size_t i) {
    stats_.reserved_bytes[i].increase(bytes);
    stats_.segment[i].increase(1);
  });
  ++stats_.num_device_alloc;
  return block.get();
}

void BlockPool::split(Block& block, std::size_t size) {
  const std::size_t left = block.size - size;
  if (block.small ? left < kMinBlock : left <= kSmall) return;
  auto& rest = blocks_[block.data + size];
  rest.reset(new Block{.data = block.data + size,
                       .size = left,
                       .stream = block.stream,
                       .small = block.small,
                       .late_is_poison = block.late_is_poison,
                       .previous = &block,
                       .next = block.next,
                       .accesses = {},
                       .recorded = {}});
  if (block.next) block.next->previous = rest.get();
  block.next = rest.get();
  block.size = size;
  free_.insert(rest.get());
  count_inactive(*rest, true);
}

Block* BlockPool::allocate(int stream, std::size_t bytes, bool& is_new) {
  const std::size_t size = rounded(bytes);
  const bool small = size <= kSmall;
  Block* block = take_free(stream, size, small);
  is_new = !block;
  if (!block) block = take_segment(stream, size, small);
  if (!block) return nullptr;
  block->live = true;
  block->reusable = false;
  block->requested = bytes;
  split(*block, size);
  change(small, [&](std::size_t i) {
    stats_.allocation[i].increase(1);
    stats_.allocated_bytes[i].increase(block->size);
    stats_.active[i].increase(1);
    stats_.active_bytes[i].increase(block->size);
    stats_.requested_bytes[i].increase(bytes);
  });
  return block;
}

void BlockPool::release(Block& block) {
  block.live = false;
  block.accesses.clear();
  block.recorded.reset();
  change(block.small, [&](std::size_t i) {
    stats_.allocation[i].decrease(1);
    stats_.allocated_bytes[i].decrease(block.size);
  });
}

/// Joins a free neighbour to a block.
void BlockPool::merge(Block& block, Block* neighbour) {
  if (!neighbour || !neighbour->reusable) return;
  count_inactive(*neighbour, false);
  free_.erase(neighbour);
  const char* const gone = std::max(block.data, neighbour->data);
  Block& first = block.data < neighbour->data ? block : *neighbour;
  Block* const second = first.next;
  first.next = second->next;
  if (second->next) second->next->previous = &first;
  if (&first != &block) {  // keep `block`, at the first one's place
    block.data = first.data;
    block.previous = first.previous;
    block.next = first.next;
    if (block.previous) block.previous->next = &block;
    if (block.next) block.next->previous = &block;
    std::swap(blocks_[first.data], blocks_[gone]);
  }
  block.size += neighbour->size;
  block.late_is_poison = block.late_is_poison && neighbour->late_is_poison;
  blocks_.erase(gone);
}

void BlockPool::make_reusable(Block& block) {
  change(block.small, [&](std::size_t i) {
    stats_.active[i].decrease(1);
    stats_.active_bytes[i].decrease(block.size);
    stats_.requested_bytes[i].decrease(block.requested);
  });
  merge(block, block.previous);
  merge(block, block.next);
  block.reusable = true;
  free_.insert(&block);
  count_inactive(block, true);
}

std::size_t BlockPool::empty_cache() {
  std::size_t segments = 0;
  for (auto it = free_.begin(); it != free_.end();) {
    Block* const block = *it;
    if (block->is_split()) {
      ++it;
      continue;
    }
    it = free_.erase(it);
    arena_.release(block->data, block->size);
    change(block->small, [&](std::size_t i) {
      stats_.reserved_bytes[i].decrease(block->size);
      stats_.segment[i].decrease(1);
    });
    ++stats_.num_device_free;
    blocks_.erase(block->data);
    ++segments;
  }
  return segments;
}

Block* BlockPool::find(const void* address) const {
  const auto next = blocks_.upper_bound(static_cast<const char*>(address));
  if (next == blocks_.begin()) return nullptr;
  Block* const block = std::prev(next)->second.get();
  return static_cast<const char*>(address) < block->data + block->size ? block : nullptr;
}

}  // namespace looptorch_test::accelerator
