// SPDX-License-Identifier: MIT
// Declares the records of a cache's files (sample_pack.hpp): a sample's key, its range in the data file, and
// the index's record, which holds both.
#pragma once

#include <looptorch/base/hash/checksum.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace looptorch::detail {

/// The key of a sample: 128 bits of its identity.
struct PackKey {
  std::uint64_t low, high;
  bool operator==(const PackKey&) const = default;
};

inline PackKey pack_key(std::string_view identity) {
  Checksum low(1), high(2);
  low.add(identity.data(), identity.size());
  high.add(identity.data(), identity.size());
  return {low.value(), high.value()};
}

/// The range of a sample in the data file: its fields, then each tensor, each at a multiple of 64 bytes.
struct PackEntry {
  std::uint64_t offset, field_bytes, total_bytes, checksum;
  bool operator==(const PackEntry&) const = default;
};

/// One record of the index.
struct PackRecord {
  static constexpr std::uint64_t kMagic = 0x31304b4341504c54U;  // "TLPACK01"

  std::uint64_t magic;
  PackKey key;
  PackEntry entry;
  std::uint64_t checksum;  ///< checksum of the members above

  static PackRecord of(const PackKey& key, const PackEntry& entry) {
    PackRecord record{kMagic, key, entry, 0};
    record.checksum = record.sum();
    return record;
  }

  [[nodiscard]] bool is_whole() const { return magic == kMagic && checksum == sum(); }

 private:
  [[nodiscard]] std::uint64_t sum() const {
    Checksum sum;
    sum.add(this, offsetof(PackRecord, checksum));
    return sum.value();
  }
};
static_assert(sizeof(PackRecord) == 64);

constexpr std::uint64_t kPackAlignment = 64;

constexpr std::uint64_t pack_aligned(std::uint64_t size) {
  return (size + kPackAlignment - 1) / kPackAlignment * kPackAlignment;
}

/// The outcome of adding a sample.
struct PackAppend {
  enum Outcome { stored, no_room, failed } outcome;
  std::uint64_t needs = 0;  ///< bytes of both files with the sample, if there is no room
  int error = 0;            ///< errno, if it failed
};

/// A piece of memory to be written.
using PackPiece = std::span<const std::byte>;

}  // namespace looptorch::detail
