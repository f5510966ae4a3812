// SPDX-License-Identifier: MIT
// Simulates LibTorch's caching allocator for CUDA with its default options
// (c10/cuda/CUDACachingAllocator.cpp), to tell what a run would reserve on a GPU. Sizes are multiples of 512
// bytes. Sizes up to 1 MiB come from segments of 2 MiB, those below 10 MiB from segments of 20 MiB, larger
// ones from segments in steps of 2 MiB. Each stream has a pool, in which blocks are found by best fit, split
// and merged.
#pragma once

#include <looptorch/memory/measure/host_memory.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <mutex>
#include <set>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

namespace looptorch::detail::shapes {

/// The simulated memory of one device, in segments and blocks. Thread-safe.
class DevicePool final : public HostMemory::Device {
 public:
  /// Adds a block, unless the device has it. `key` identifies it, since it has no address on the device.
  void allocate(const void* key, std::size_t bytes, HostMemory::Place place) {
    if (bytes == 0 || place == HostMemory::Place::host) return;
    const std::lock_guard lock(mutex_);
    if (taken_.contains(key)) return;
    const std::size_t size = round_up(bytes, kStep);
    take(key, size, {place == HostMemory::Place::copied, size <= kSmall});
  }

  /// Removes a block, if it belongs to the device.
  void free(const void* key) {
    const std::lock_guard lock(mutex_);
    const auto found = taken_.find(key);
    if (found == taken_.end()) return;
    auto part = parts_.find(found->second.at);
    taken_.erase(found);
    allocated_ -= static_cast<std::int64_t>(part->second.size);
    if (const auto next = std::next(part); joins(part, next)) join(part, next);
    if (part != parts_.begin())
      if (const auto before = std::prev(part); joins(part, before)) {
        join(before, part);
        part = before;
      }
    part->second.is_free = true;
    free_.insert(entry(part));
  }

  [[nodiscard]] MemoryReading read() const override {
    const std::lock_guard lock(mutex_);
    return {allocated_, peak_, reserved_, peak_reserved_};
  }
  void reset_peak() override {
    const std::lock_guard lock(mutex_);
    peak_ = allocated_, peak_reserved_ = reserved_;
  }
  void repack(const std::vector<const void*>& data) override {
    const std::lock_guard lock(mutex_);
    std::unordered_map<const void*, std::size_t> order;
    for (const void* const one : data)
      order.emplace(static_cast<const std::byte*>(one) - HostMemory::kHead, order.size());
    std::map<std::pair<std::size_t, Address>, std::pair<const void*, Block>> blocks;
    for (const auto& [key, block] : taken_) {
      const auto found = order.find(key);
      const std::size_t number = found == order.end() ? order.size() : found->second;
      blocks.emplace(std::pair{number, block.at}, std::pair{key, block});
    }
    parts_.clear(), free_.clear(), taken_.clear();
    allocated_ = reserved_ = 0, end_ = 0;
    for (const auto& [place, named] : blocks) take(named.first, named.second.size, named.second.pool);
  }

 private:
  static constexpr std::size_t kMiB = std::size_t{1} << 20, kStep = 512, kSmall = kMiB;
  using Address = std::size_t;
  struct Pool {
    bool of_copies, is_small;
    auto operator<=>(const Pool&) const = default;
  };
  struct Part {
    std::size_t size;
    Pool pool;
    Address segment;
    bool is_free;
  };
  struct Block {
    Address at;
    std::size_t size;
    Pool pool;
  };
  using Parts = std::map<Address, Part>;
  using Entry = std::tuple<Pool, std::size_t, Address>;

  static constexpr std::size_t round_up(std::size_t bytes, std::size_t step) {
    return (bytes + step - 1) / step * step;
  }
  static Entry entry(Parts::const_iterator part) {
    return {part->second.pool, part->second.size, part->first};
  }

  void take(const void* key, std::size_t size, Pool pool) {
    const auto found = free_.lower_bound({pool, size, 0});
    const bool is_there = found != free_.end() && std::get<Pool>(*found) == pool;
    const auto part = parts_.find(is_there ? std::get<2>(*found) : add_segment(pool, size));
    if (is_there) free_.erase(found);
    split(part, size);
    part->second.is_free = false;
    taken_.emplace(key, Block{part->first, size, pool});
    allocated_ += static_cast<std::int64_t>(part->second.size);
    peak_ = std::max(peak_, allocated_);
  }

  Address add_segment(Pool pool, std::size_t size) {
    const std::size_t bytes = pool.is_small      ? 2 * kMiB
                              : size < 10 * kMiB ? 20 * kMiB
                                                 : round_up(size, 2 * kMiB);
    const Address at = end_;
    end_ += bytes;
    parts_[at] = {bytes, pool, at, true};
    reserved_ += static_cast<std::int64_t>(bytes);
    peak_reserved_ = std::max(peak_reserved_, reserved_);
    return at;
  }

  /// Frees what a part has beyond `size`, if that is enough for a part of its own.
  void split(Parts::iterator part, std::size_t size) {
    const std::size_t left = part->second.size - size;
    if (part->second.pool.is_small ? left < kStep : left <= kSmall) return;
    part->second.size = size;
    const auto rest = parts_.emplace(part->first + size, part->second).first;
    rest->second.size = left, rest->second.is_free = true;
    free_.insert(entry(rest));
  }

  [[nodiscard]] bool joins(Parts::const_iterator part, Parts::const_iterator neighbour) const {
    return neighbour != parts_.end() && neighbour->second.is_free &&
           neighbour->second.segment == part->second.segment;
  }
  void join(Parts::iterator first, Parts::iterator second) {
    for (const auto part : {first, second}) free_.erase(entry(part));  // one of the two is free
    first->second.size += second->second.size;
    parts_.erase(second);
  }

  mutable std::mutex mutex_;
  Parts parts_;
  std::set<Entry> free_;
  std::unordered_map<const void*, Block> taken_;
  std::size_t end_ = 0;
  std::int64_t allocated_ = 0, peak_ = 0, reserved_ = 0, peak_reserved_ = 0;
};

}  // namespace looptorch::detail::shapes
