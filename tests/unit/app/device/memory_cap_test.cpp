// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/app/device/memory_cap.hpp>

TEST_CASE("a cap holds CPU tensors below it, is lifted for a while, and refuses devices without one") {
  auto& memory = looptorch::HostMemory::counted();
  const auto make = [] { return torch::zeros({1'000'000}); };
  looptorch::app::set_memory_cap(torch::kCPU, memory.allocated_bytes() + 2'000'000);
  CHECK_THROWS_AS(make(), c10::OutOfMemoryError);
  {
    const looptorch::app::HostCapLifted lifted;
    CHECK_NOTHROW(make());
  }
  CHECK_THROWS_AS(make(), c10::OutOfMemoryError);
  memory.set_limit(looptorch::HostMemory::kNoLimit);
  CHECK_THROWS_WITH(looptorch::app::set_memory_cap(torch::kMeta, 1), Catch::Contains("cannot be capped"));
}
