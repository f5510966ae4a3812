// SPDX-License-Identifier: MIT
// What a sample pack holds: keys, and where each sample lies in the data file.
#pragma once

#include <looptorch/state/detail/checksum.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace looptorch::detail {

/// What names a sample: 128 bits of its identity.
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

/// Where a sample lies in the data file: its fields, then each tensor, each at a multiple of 64 bytes.
struct PackEntry {
  std::uint64_t offset, field_bytes, total_bytes, checksum;
  bool operator==(const PackEntry&) const = default;
};

constexpr std::uint64_t kPackAlignment = 64;

constexpr std::uint64_t pack_aligned(std::uint64_t size) {
  return (size + kPackAlignment - 1) / kPackAlignment * kPackAlignment;
}

/// What became of a sample that was to be added.
enum class PackAppend { stored, no_room, failed };

/// A piece of memory to be written.
using PackPiece = std::span<const std::byte>;

}  // namespace looptorch::detail
