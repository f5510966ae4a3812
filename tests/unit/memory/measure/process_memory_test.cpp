// SPDX-License-Identifier: MIT
// What the process takes of the machine's memory.
#include "support/precompiled.hpp"

#include <looptorch/memory/measure/process_memory.hpp>

#include <vector>

namespace lt = looptorch;

TEST_CASE("process_memory follows what the process takes, and remembers the most") {
  const auto before = lt::process_memory(c10::kCPU);
  CHECK(before.resident > 1'000'000);
  CHECK(before.peak >= before.resident);
  constexpr std::int64_t kBytes = 300'000'000;
  {
    std::vector<char> block(static_cast<std::size_t>(kBytes), 'x');
    const auto during = lt::process_memory(c10::kCPU);
    CHECK(during.resident > before.resident + kBytes * 9 / 10);
    CHECK(block.back() == 'x');
  }
  const auto after = lt::process_memory(c10::kCPU);
  CHECK(after.resident < before.resident + kBytes / 2);
  CHECK(after.peak > before.resident + kBytes * 9 / 10);
  CHECK(after.pinned == 0);
}
