// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/base/stopwatch.hpp>

TEST_CASE("A stopwatch runs") {
  const looptorch::Stopwatch stopwatch;
  const double first = stopwatch.seconds();
  CHECK(first >= 0);
  CHECK(stopwatch.seconds() >= first);
  CHECK(stopwatch.seconds() < 60);
}
