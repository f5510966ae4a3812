// SPDX-License-Identifier: MIT
// Hashes text to the same number on every machine and in every run, for ids, names of files, and splits that
// must not change. About 1 GB/s. Texts that collide are easy to construct: for tables whose keys come from a
// file use KeyedHash.
#pragma once

#include <cstdint>
#include <string_view>

namespace looptorch {

/// Returns the 64-bit FNV-1a hash of the bytes (Fowler, Noll, Vo). Among 10 million texts, two have the same
/// hash with a probability of 3 in a million; it is easy to construct texts that collide.
[[nodiscard]] constexpr std::uint64_t stable_hash(std::string_view bytes) {
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const char byte : bytes) hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3U;
  return hash;
}

}  // namespace looptorch
