// SPDX-License-Identifier: MIT
// A device's caching allocator, which divides memory as CUDA's does with its default options, so that its
// statistics are CUDA's, too (c10/cuda/CUDACachingAllocator.cpp). Sizes are multiples of 512 bytes. Sizes up
// to 1 MiB come from segments of 2 MiB, those below 10 MiB from segments of 20 MiB, larger ones from segments
// in steps of 2 MiB. Each stream has a pool, in which blocks are found by best fit, split and merged.
#pragma once

#include "support/accelerator/memory/arena.hpp"
#include "support/accelerator/order/accesses.hpp"
#include "support/accelerator/order/clock.hpp"

#include <c10/core/CachingDeviceAllocator.h>

#include <bitset>
#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <vector>

namespace looptorch_test::accelerator {

struct Block {
  char* data;
  std::size_t size;
  int stream;
  bool small;
  bool live = false;                           // a tensor has it
  bool reusable = true;                        // neither a tensor has it, nor work of other streams
  bool late_is_poison = false;                 // in the late copy of the memory
  std::size_t requested = 0;                   // bytes
  Block *previous = nullptr, *next = nullptr;  // of the same segment
  Accesses accesses;
  std::bitset<kStreams> recorded;  // streams that record_stream named

  [[nodiscard]] bool is_split() const { return previous || next; }
};

class BlockPool {
 public:
  using Stats = c10::CachingDeviceAllocator::DeviceStats;

  explicit BlockPool(Arena& arena) : arena_(arena) {}
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  /// Returns a block for a stream, or nullptr if there is no memory below the cap. `is_new` becomes true
  /// where the block's segment is new.
  Block* allocate(int stream, std::size_t bytes, bool& is_new);
  /// The tensor is gone. The block can be allocated again after `make_reusable`.
  void release(Block& block);
  void make_reusable(Block& block);
  /// Gives segments without a block in use back, and returns their number.
  std::size_t empty_cache();

  /// Returns the block that holds an address, in use or not, or nullptr.
  [[nodiscard]] Block* find(const void* address) const;
  /// Calls `visit` with each block, in use or not.
  template <class Visit>
  void each_block(const Visit& visit) {
    for (auto& [data, block] : blocks_) visit(*block);
  }

  void cap(std::size_t bytes) { cap_ = bytes; }
  [[nodiscard]] std::size_t capacity() const { return cap_ ? cap_ : Arena::kBytes; }
  [[nodiscard]] std::size_t reserved() const {
    return static_cast<std::size_t>(stats_.reserved_bytes[0].current);
  }
  [[nodiscard]] Stats& stats() { return stats_; }

  [[nodiscard]] static std::size_t rounded(std::size_t bytes);
  [[nodiscard]] static std::size_t segment_size(std::size_t rounded);

 private:
  struct Less {
    bool operator()(const Block* a, const Block* b) const {
      return std::tie(a->small, a->stream, a->size, a->data) <
             std::tie(b->small, b->stream, b->size, b->data);
    }
  };

  Block* take_free(int stream, std::size_t size, bool small);
  Block* take_segment(int stream, std::size_t size, bool small);
  void split(Block& block, std::size_t size);
  void merge(Block& block, Block* neighbour);
  void count_inactive(const Block& block, bool adds);
  template <class Change>
  void change(bool small, const Change& change);

  Arena& arena_;
  std::map<const char*, std::unique_ptr<Block>> blocks_;
  std::set<Block*, Less> free_;
  Stats stats_;
  std::size_t cap_ = 0;
};

}  // namespace looptorch_test::accelerator
