// SPDX-License-Identifier: MIT
// Defines the number that stands for "set at run time" in `Accumulate<>` and `CacheFlushEvery<>`.
#pragma once

#include <cstdint>
#include <limits>

namespace looptorch::detail {

inline constexpr std::int64_t kAtRunTime = std::numeric_limits<std::int64_t>::min();

}  // namespace looptorch::detail
