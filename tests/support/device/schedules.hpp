// SPDX-License-Identifier: MIT
// Returns how many orders of a device's work a test tries; LOOPTORCH_SCHEDULES in the environment sets it.
#pragma once

#include <cstdlib>

namespace device_tests {

/// Returns LOOPTORCH_SCHEDULES, or `usual` without it.
[[nodiscard]] inline int schedules(int usual) {
  const char* const asked = std::getenv("LOOPTORCH_SCHEDULES");
  return asked ? std::atoi(asked) : usual;
}

}  // namespace device_tests
