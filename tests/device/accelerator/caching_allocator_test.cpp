// SPDX-License-Identifier: MIT
// Device memory: protected, poisoned, and divided as CUDA's caching allocator divides it.
#include "support/precompiled.hpp"

#include "support/accelerator/accelerator.hpp"
#include "support/accelerator/device/allocators.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <cstdio>

namespace sim = looptorch_test::accelerator;

namespace {

constexpr std::int64_t kMiB = 1 << 20;
const at::TensorOptions kHere = at::TensorOptions().device(sim::device(1)).dtype(at::kByte);

auto stats() { return sim::device_memory().getDeviceStats(1); }
std::int64_t reserved() { return stats().reserved_bytes[0].current; }
std::int64_t allocated() { return stats().allocated_bytes[0].current; }
at::Tensor bytes(std::int64_t count) { return at::empty({count}, kHere); }

TEST_CASE("sim: the host cannot touch device memory, and new memory is NaN") {
  const at::Tensor a = at::ones({4}, kHere.dtype(at::kFloat));
  const pid_t child = ::fork();
  if (child == 0) {
    (void)std::freopen("/dev/null", "w", stderr);
    (void)std::freopen("/dev/null", "w", stdout);
    ::signal(SIGSEGV, SIG_DFL);
    const volatile float* const data = static_cast<const float*>(a.const_data_ptr());
    ::_exit(*data == 1 ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  CHECK(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == SIGSEGV);
  CHECK(*static_cast<float*>(sim::readable(a.const_data_ptr())) == 1);
  for (const bool behind : {false, true}) {
    const sim::With with({.behind_host = behind});
    { const at::Tensor gone = at::ones({4}, kHere.dtype(at::kFloat)); }
    CHECK(std::isnan(at::empty({4}, kHere.dtype(at::kFloat))[0].item<float>()));
  }
}

TEST_CASE("sim: segments have the sizes of CUDA's caching allocator") {
  sim::device_memory().emptyCache();
  const std::int64_t before = reserved(), used = allocated();
  struct Size {
    std::int64_t requested, allocated, reserved;
  };
  for (const Size size :
       {Size{1, 512, 2 * kMiB}, Size{513, 1024, 2 * kMiB}, Size{kMiB, kMiB, 2 * kMiB},
        Size{kMiB + 1, kMiB + 512, 20 * kMiB}, Size{10 * kMiB - 512, 10 * kMiB - 512, 20 * kMiB},
        Size{10 * kMiB, 10 * kMiB, 10 * kMiB},  // at most 1 MiB is left, which is not split off
        Size{11 * kMiB, 12 * kMiB, 12 * kMiB}, Size{21 * kMiB + 512, 22 * kMiB, 22 * kMiB}}) {
    const at::Tensor tensor = bytes(size.requested);
    CHECK(allocated() - used == size.allocated);
    CHECK(reserved() - before == size.reserved);
    CHECK(stats().requested_bytes[0].current >= size.requested);
    const_cast<at::Tensor&>(tensor).reset();
    CHECK(allocated() == used);
    CHECK(reserved() - before == size.reserved);
    sim::device_memory().emptyCache();
    CHECK(reserved() == before);
  }
}

TEST_CASE("sim: blocks are split, merged and found again, best fit first") {
  sim::device_memory().emptyCache();
  const std::int64_t before = reserved();
  at::Tensor a = bytes(2 * kMiB), b = bytes(3 * kMiB), c = bytes(4 * kMiB);
  CHECK(reserved() - before == 20 * kMiB);
  CHECK(stats().segment[2].current == 1);
  CHECK(stats().inactive_split[2].current == 1);
  CHECK(stats().inactive_split_bytes[2].current == 11 * kMiB);
  const void *const at_a = a.const_data_ptr(), *const at_b = b.const_data_ptr();
  b.reset();
  CHECK(stats().inactive_split[2].current == 2);
  b = bytes(2 * kMiB + 512);  // 3 MiB fit better than 11; what is left is too little to be split off
  CHECK(b.const_data_ptr() == at_b);
  CHECK(stats().inactive_split[2].current == 1);
  a.reset(), b.reset();  // merged
  CHECK(stats().inactive_split_bytes[2].current == 16 * kMiB);
  a = bytes(5 * kMiB);
  CHECK(a.const_data_ptr() == at_a);
  sim::device_memory().emptyCache();
  CHECK(reserved() - before == 20 * kMiB);  // a part of it is in use
  a.reset(), c.reset();
  CHECK(stats().inactive_split[2].current == 0);
  sim::device_memory().emptyCache();
  CHECK(reserved() == before);

  sim::device_memory().resetPeakStats(1);
  { const at::Tensor large = bytes(30 * kMiB); }
  CHECK(stats().allocated_bytes[0].peak - allocated() == 30 * kMiB);
  sim::device_memory().emptyCache();
}

TEST_CASE("sim: beyond the cap the cache is emptied, then c10::OutOfMemoryError is thrown") {
  sim::device_memory().emptyCache();
  const sim::With with({.cap_bytes = static_cast<std::size_t>(reserved() + 40 * kMiB)});
  const auto ooms = stats().num_ooms, retries = stats().num_alloc_retries;
  CHECK(sim::device_memory().getMemoryInfo(1).first == 40 * kMiB);
  { const at::Tensor cached = bytes(30 * kMiB); }
  const at::Tensor a = bytes(32 * kMiB);
  CHECK(stats().num_alloc_retries == retries + 1);
  CHECK_THROWS_AS(bytes(20 * kMiB), c10::OutOfMemoryError);
  CHECK_THROWS_WITH(bytes(20 * kMiB),
                    Catch::Contains("CUDA out of memory (simulated). Tried to allocate 20971520"));
  CHECK(stats().num_ooms == ooms + 2);
}

}  // namespace
