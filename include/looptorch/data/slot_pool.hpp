// SPDX-License-Identifier: MIT
// Memory that is used again and again: as many slots as batches exist at once, each with a block for every
// tensor of a batch. Free of torch, so that ThreadSanitizer sees all of it. A lock and no allocation for a
// block that was there.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace looptorch::detail {

/// What a pool has, and what it has done for that.
struct SlotCounts {
  std::int64_t slots = 0;
  std::int64_t bytes = 0;        ///< of all slots, those in use and those that wait
  std::int64_t allocations = 0;  ///< blocks that were made, or made larger
  std::int64_t reuses = 0;       ///< blocks that were given out as they were
};

/// Blocks come back by themselves, from any thread, and after the pool's end too. Owned by a shared_ptr.
class SlotPool : public std::enable_shared_from_this<SlotPool> {
 public:
  using Memory = std::shared_ptr<void>;
  using Allocate = Memory (*)(std::size_t bytes);

  /// The memory of one tensor.
  class Block {
   public:
    [[nodiscard]] void* data() const { return memory_.get(); }

   private:
    friend SlotPool;
    Block(std::weak_ptr<SlotPool> pool, std::size_t place) : pool_(std::move(pool)), place_(place) {}

    const std::weak_ptr<SlotPool> pool_;
    const std::size_t place_;
    std::size_t bytes_ = 0;
    Memory memory_;
  };

  /// Gives a block back to its pool; frees it where the pool has ended.
  struct GiveBack {
    void operator()(Block* block) const noexcept {
      std::unique_ptr<Block> owned(block);
      if (const auto pool = owned->pool_.lock()) pool->keep(std::move(owned));
    }
  };
  using Lease = std::unique_ptr<Block, GiveBack>;

  explicit SlotPool(Allocate allocate) : allocate_(allocate) {}
  SlotPool(const SlotPool&) = delete;
  SlotPool& operator=(const SlotPool&) = delete;

  /// At least `bytes` for the tensor at `place` of a batch: of a slot that waits, which grows if need be, or
  /// of a new one. Tensors have places so that one which is kept holds its own memory only.
  [[nodiscard]] Lease take(std::size_t place, std::size_t bytes) {
    Lease block = waiting_or_new(place, bytes);
    if (block->bytes_ < bytes) grow(*block, bytes);
    return block;
  }

  /// Frees what has not been needed since the last call; what was in use at once stays.
  void trim() {
    const std::lock_guard lock(mutex_);
    for (Place& place : places_) {
      for (; place.blocks() > place.most && !place.waiting.empty(); place.waiting.pop_back())
        bytes_ -= place.waiting.back()->bytes_;
      place.most = place.in_use;
    }
  }

  [[nodiscard]] SlotCounts counts() const {
    const std::lock_guard lock(mutex_);
    std::size_t slots = 0;
    for (const Place& place : places_) slots = std::max(slots, place.blocks());
    return {static_cast<std::int64_t>(slots), static_cast<std::int64_t>(bytes_), allocations_, reuses_};
  }

 private:
  struct Place {
    std::vector<std::unique_ptr<Block>> waiting{};  ///< The one that was used last is given out first.
    std::size_t in_use = 0;
    std::size_t most = 0;  ///< In use at once since the last `trim`.

    [[nodiscard]] std::size_t blocks() const { return in_use + waiting.size(); }
  };

  Lease waiting_or_new(std::size_t place, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    if (places_.size() <= place) places_.resize(place + 1);
    Place& here = places_[place];
    if (here.waiting.empty()) make(here, place);
    reuses_ += here.waiting.back()->bytes_ >= bytes;
    here.most = std::max(here.most, ++here.in_use);
    Lease block(here.waiting.back().release());
    here.waiting.pop_back();
    return block;
  }

  /// With room for it to come back, which must not fail.
  void make(Place& here, std::size_t place) {
    here.waiting.reserve(here.in_use + 1);
    here.waiting.push_back(std::unique_ptr<Block>(new Block(weak_from_this(), place)));
  }

  /// Never has the old and the new memory at once.
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

  void keep(std::unique_ptr<Block> block) noexcept {
    const std::lock_guard lock(mutex_);
    Place& here = places_[block->place_];
    --here.in_use;
    here.waiting.push_back(std::move(block));
  }

  const Allocate allocate_;
  mutable std::mutex mutex_;  // guards everything below
  std::vector<Place> places_;
  std::ptrdiff_t bytes_ = 0;
  std::int64_t allocations_ = 0;
  std::int64_t reuses_ = 0;
};

}  // namespace looptorch::detail
