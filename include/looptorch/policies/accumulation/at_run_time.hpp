// SPDX-License-Identifier: MIT
// Defines kAtRunTime, the template argument of `Accumulate<>` and `CacheFlushEvery<>`, which take their
// number at run time.
#pragma once

#include <cstdint>
#include <limits>

namespace looptorch::detail {

inline constexpr std::int64_t kAtRunTime = std::numeric_limits<std::int64_t>::min();

}  // namespace looptorch::detail
