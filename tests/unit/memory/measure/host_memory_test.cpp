// SPDX-License-Identifier: MIT
// The bytes of CPU tensors, and a limit on them.
// Tests memory/measure: memory_counter
#include "support/precompiled.hpp"

#include <looptorch/memory/measure/host_memory.hpp>
#include <looptorch/memory/measure/memory_counter.hpp>

#include <thread>
#include <vector>

namespace lt = looptorch;

TEST_CASE("host memory: tensors count while they live") {
  const auto early = torch::ones(100);  // before or after counting began: never counted as freed
  lt::HostMemory& memory = lt::HostMemory::counted();
  const std::int64_t before = memory.allocated_bytes();
  {
    const auto a = torch::empty({1000}, torch::kFloat), b = a.view({10, 100});  // a view takes nothing
    CHECK(memory.allocated_bytes() == before + 4000);
    const auto c = torch::empty({10}, torch::kDouble);
    CHECK(memory.allocated_bytes() == before + 4080);
    CHECK(reinterpret_cast<std::uintptr_t>(a.data_ptr()) % 64 == 0);
  }
  CHECK(memory.allocated_bytes() == before);
  CHECK(torch::empty(0).numel() == 0);
  CHECK(memory.allocated_bytes() == before);
}

TEST_CASE("host memory: the peak is that since the last reset, of all threads") {
  const lt::MemoryCounter counter(at::kCPU);
  counter.reset_peak();
  const std::int64_t before = counter.read().allocated;
  { const auto gone = torch::empty({1 << 20}, torch::kByte); }
  CHECK(counter.read().peak == before + (1 << 20));
  CHECK(counter.read().allocated == before);
  counter.reset_peak();
  CHECK(counter.read().peak == before);

  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([] {
      for (int n = 1; n < 200; ++n) (void)torch::empty({n * 64}, torch::kByte);
    });
  for (auto& thread : threads) thread.join();
  CHECK(counter.read().allocated == before);
  CHECK(counter.read().peak >= before + 199 * 64);
}

TEST_CASE("host memory: beyond a limit there is the error that a GPU has, and nothing is counted") {
  lt::HostMemory& memory = lt::HostMemory::counted();
  const std::int64_t before = memory.allocated_bytes();
  memory.set_limit(before + 1000);
  CHECK_NOTHROW(torch::empty({1000}, torch::kByte));
  try {
    (void)torch::empty({1001}, torch::kByte);
    FAIL("no error");
  } catch (const c10::OutOfMemoryError& error) {
    CHECK_THAT(error.what_without_backtrace(), Catch::Matchers::Contains(std::to_string(before) + " bytes"));
    CHECK_THAT(error.what_without_backtrace(), Catch::Matchers::Contains("another 1001"));
  }
  memory.set_limit(lt::HostMemory::kNoLimit);
  CHECK(memory.allocated_bytes() == before);
  CHECK_NOTHROW(torch::empty({1001}, torch::kByte));
}

TEST_CASE("memory capacity: a CPU's is the machine's, or what a container allows") {
  const auto capacity = lt::memory_capacity(at::kCPU);
  REQUIRE(capacity);
  CHECK(capacity->total > 100'000'000);
  CHECK(capacity->available > 0);
  CHECK(capacity->available <= capacity->total);
  CHECK_FALSE(lt::memory_capacity(at::kMeta));
}
