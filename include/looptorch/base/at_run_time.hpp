// SPDX-License-Identifier: MIT
// The template argument that stands for "known when the program runs": what `Accumulate<>` and
// `CacheFlushEvery<>` have.
#pragma once

#include <cstdint>
#include <limits>

namespace looptorch::detail {

inline constexpr std::int64_t kAtRunTime = std::numeric_limits<std::int64_t>::min();

}  // namespace looptorch::detail
