// SPDX-License-Identifier: MIT
// Defines kAtRunTime, the default template argument of `Accumulate` and `CacheFlushEvery`. It stands for a
// number that is given at run time: `Accumulate<>{n}` in place of `Accumulate<4>`.
#pragma once

#include <cstdint>
#include <limits>

namespace looptorch::detail {

inline constexpr std::int64_t kAtRunTime = std::numeric_limits<std::int64_t>::min();

}  // namespace looptorch::detail
