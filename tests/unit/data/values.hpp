// SPDX-License-Identifier: MIT
// Batches that are the list of their samples, which are numbers.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace values {

using Values = std::vector<std::int64_t>;
using Batches = std::vector<Values>;

/// A collate.
inline constexpr auto kKeep = [](std::span<std::int64_t> samples) {
  return Values(samples.begin(), samples.end());
};

}  // namespace values
