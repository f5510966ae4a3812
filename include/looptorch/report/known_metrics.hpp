// SPDX-License-Identifier: MIT
// Names the metrics of LogMetrics (policies/watching/metric_feed.hpp) that report.html and compare.html treat
// specially, so that writer and pages agree on them.
#pragma once

#include <string_view>

namespace looptorch::report {

inline constexpr std::string_view kTimePrefix = "time/";  ///< The seconds of a phase, whose name follows.
inline constexpr std::string_view kDeviceBusy = "device_busy";
inline constexpr std::string_view kSkipped = "skipped";
inline constexpr std::string_view kStepSeconds = "step_seconds";

}  // namespace looptorch::report
