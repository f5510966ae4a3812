// SPDX-License-Identifier: MIT
// A bijection of 64-bit words in which every bit of the input moves about half of those of the output.
#pragma once

#include <cstdint>

namespace looptorch::detail {

/// The odd number next to 2^64 / golden ratio: steps by it spread evenly.
inline constexpr std::uint64_t kGoldenGamma = 0x9e3779b97f4a7c15U;

/// SplitMix64's finalizer (Stafford's variant 13).
[[nodiscard]] constexpr std::uint64_t mix64(std::uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9U;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebU;
  return value ^ (value >> 31);
}

}  // namespace looptorch::detail
