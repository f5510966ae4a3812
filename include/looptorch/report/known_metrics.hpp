// SPDX-License-Identifier: MIT
// Names of metrics that LogMetrics (policies/parts/metric_feed.hpp) writes and that pages treat apart.
#pragma once

#include <string_view>

namespace looptorch::report {

inline constexpr std::string_view kTimePrefix = "time/";  ///< The seconds of a phase, whose name follows.
inline constexpr std::string_view kDeviceBusy = "device_busy";
inline constexpr std::string_view kSkipped = "skipped";
inline constexpr std::string_view kStepSeconds = "step_seconds";

}  // namespace looptorch::report
