// SPDX-License-Identifier: MIT
// Lends memory to the tensors of batches, one block per tensor. A freed block serves the tensor at the same
// position (first, second, ...) of a later batch. Reusing a block costs a lock and no allocation, unless the
// block must grow. Does not use torch, so that ThreadSanitizer sees all of it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace looptorch::detail {

/// The pool's size and its allocations so far.
struct SlotCounts {
  std::int64_t slots = 0;
  std::int64_t bytes = 0;        ///< size of all blocks, in use or free
  std::int64_t allocations = 0;  ///< blocks that were created or enlarged
  std::int64_t reuses = 0;       ///< blocks that were reused unchanged
};

/// A lease gives its block back as it ends, on any thread, or frees it if the pool has ended.
class BatchMemoryPool : public std::enable_shared_from_this<BatchMemoryPool> {
 public:
  using Memory = std::shared_ptr<void>;
  using Allocate = Memory (*)(std::size_t bytes);

  /// The memory of one tensor.
  class Block {
   public:
    [[nodiscard]] void* data() const { return memory_.get(); }

   private:
    friend BatchMemoryPool;
    Block(std::weak_ptr<BatchMemoryPool> pool, std::size_t position)
        : pool_(std::move(pool)), position_(position) {}

    const std::weak_ptr<BatchMemoryPool> pool_;
    const std::size_t position_;
    std::size_t bytes_ = 0;
    Memory memory_;
  };

  /// Returns a block to its pool, or frees it if the pool has ended.
  struct ReturnToPool {
    void operator()(Block* block) const noexcept {
      std::unique_ptr<Block> owned(block);
      if (const auto pool = owned->pool_.lock()) pool->put_back(std::move(owned));
    }
  };
  using Lease = std::unique_ptr<Block, ReturnToPool>;

  explicit BatchMemoryPool(Allocate allocate) : allocate_(allocate) {}
  BatchMemoryPool(const BatchMemoryPool&) = delete;
  BatchMemoryPool& operator=(const BatchMemoryPool&) = delete;

  /// Returns a block of at least `bytes` for the tensor at `position` of a batch: a free one, which grows if
  /// need be, or a new one. Each position has its own blocks, so that a tensor which the consumer keeps holds
  /// only its own memory.
  [[nodiscard]] Lease take(std::size_t position, std::size_t bytes) {
    Lease block = free_or_new(position, bytes);
    if (block->bytes_ < bytes) grow(*block, bytes);
    return block;
  }

  /// Frees unused blocks, except as many as have been in use at once since the last call.
  void trim() {
    const std::lock_guard lock(mutex_);
    for (Blocks& blocks : positions_) {
      for (; blocks.total() > blocks.most && !blocks.free.empty(); blocks.free.pop_back())
        bytes_ -= blocks.free.back()->bytes_;
      blocks.most = blocks.in_use;
    }
  }

  [[nodiscard]] SlotCounts counts() const {
    const std::lock_guard lock(mutex_);
    std::size_t slots = 0;
    for (const Blocks& blocks : positions_) slots = std::max(slots, blocks.total());
    return {static_cast<std::int64_t>(slots), static_cast<std::int64_t>(bytes_), allocations_, reuses_};
  }

 private:
  struct Blocks {
    std::vector<std::unique_ptr<Block>> free{};  ///< The last one used is reused first.
    std::size_t in_use = 0;
    std::size_t most = 0;  ///< In use at once since the last `trim`.

    [[nodiscard]] std::size_t total() const { return in_use + free.size(); }
  };

  Lease free_or_new(std::size_t position, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    if (positions_.size() <= position) positions_.resize(position + 1);
    Blocks& blocks = positions_[position];
    if (blocks.free.empty()) make(blocks, position);
    reuses_ += blocks.free.back()->bytes_ >= bytes;
    blocks.most = std::max(blocks.most, ++blocks.in_use);
    Lease block(blocks.free.back().release());
    blocks.free.pop_back();
    return block;
  }

  /// Adds a block and reserves room for its return, which must not fail.
  void make(Blocks& blocks, std::size_t position) {
    blocks.free.reserve(blocks.in_use + 1);
    blocks.free.push_back(std::unique_ptr<Block>(new Block(weak_from_this(), position)));
  }

  /// Enlarges a block. Frees its old memory before it allocates the new.
  void grow(Block& block, std::size_t bytes) {
    block.memory_.reset();
    count(-static_cast<std::ptrdiff_t>(std::exchange(block.bytes_, 0)), 0);
    block.memory_ = allocate_(bytes);
    block.bytes_ = bytes;
    count(static_cast<std::ptrdiff_t>(bytes), 1);
  }

  void count(std::ptrdiff_t bytes, std::int64_t allocations) {
    const std::lock_guard lock(mutex_);
    bytes_ += bytes;
    allocations_ += allocations;
  }

  void put_back(std::unique_ptr<Block> block) noexcept {
    const std::lock_guard lock(mutex_);
    Blocks& blocks = positions_[block->position_];
    --blocks.in_use;
    blocks.free.push_back(std::move(block));
  }

  const Allocate allocate_;
  mutable std::mutex mutex_;  // guards everything below
  std::vector<Blocks> positions_;
  std::ptrdiff_t bytes_ = 0;
  std::int64_t allocations_ = 0;
  std::int64_t reuses_ = 0;
};

}  // namespace looptorch::detail
