// SPDX-License-Identifier: MIT
// Finds a sample's record in the index of a cache (sample_pack.hpp) by its key. The index stays on disk; a
// hash table in memory maps keys to record numbers. An entry of the table has 8 bytes, and at most two thirds
// of the entries are in use. So ten million keys need 134 MB, and 4 s to be read in.
#pragma once

#include <looptorch/data/cache/pack_entry.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

namespace looptorch::detail {

/// Maps keys to record numbers. It holds 32 bits of each key; `is_of_key(number)` reads the record and
/// decides whether it is the right one. Open addressing with linear probing.
class PackTable {
 public:
  using Number = std::uint32_t;
  static constexpr std::uint64_t kMaxRecords = std::numeric_limits<Number>::max() - 1;

  template <class IsOfKey>
  bool contains(const PackKey& key, const IsOfKey& is_of_key) const {
    return slot_of(key, is_of_key) != nullptr;
  }

  /// Sets the key's record, replacing an older one.
  template <class IsOfKey>
  void put(const PackKey& key, Number number, const IsOfKey& is_of_key) {
    if (const Slot* slot = slot_of(key, is_of_key)) {
      slots_[static_cast<std::size_t>(slot - slots_.data())].number = number;
      return;
    }
    reserve(taken_ + 1);
    insert({tag_of(key), number});
  }

  template <class IsOfKey>
  void erase(const PackKey& key, const IsOfKey& is_of_key) {
    if (const Slot* slot = slot_of(key, is_of_key))
      slots_[static_cast<std::size_t>(slot - slots_.data())].number = kErased;
  }

  /// Reserves slots for `count` keys.
  void reserve(std::size_t count) {
    if (3 * count <= 2 * slots_.size()) return;
    const std::vector<Slot> before =
        std::exchange(slots_, std::vector<Slot>(std::bit_ceil(count + count / 2 + kFewest)));
    taken_ = 0;
    for (const Slot& slot : before)
      if (slot.number < kErased) insert(slot);
  }

  void clear() {
    slots_ = {};
    taken_ = 0;
  }

 private:
  static constexpr Number kErased = std::numeric_limits<Number>::max() - 1, kFree = kErased + 1;
  static constexpr std::size_t kFewest = 64;
  struct Slot {
    std::uint32_t tag = 0;
    Number number = kFree;
  };

  static std::uint32_t tag_of(const PackKey& key) { return static_cast<std::uint32_t>(key.low); }

  template <class IsOfKey>
  const Slot* slot_of(const PackKey& key, const IsOfKey& is_of_key) const {
    if (slots_.empty()) return nullptr;
    const std::uint32_t tag = tag_of(key);
    for (std::size_t at = tag & mask(); slots_[at].number != kFree; at = (at + 1) & mask())
      if (slots_[at].tag == tag && slots_[at].number < kErased && is_of_key(slots_[at].number))
        return &slots_[at];
    return nullptr;
  }

  void insert(const Slot& slot) {
    std::size_t at = slot.tag & mask();
    while (slots_[at].number != kFree) at = (at + 1) & mask();
    slots_[at] = slot;
    ++taken_;
  }

  std::size_t mask() const { return slots_.size() - 1; }

  std::vector<Slot> slots_;  // its size is a power of two
  std::size_t taken_ = 0;    // erased ones included
};

}  // namespace looptorch::detail
