// SPDX-License-Identifier: MIT
// Devices that fail, lack memory, or are fewer.
#include "support/precompiled.hpp"

#include "support/accelerator/accelerator.hpp"

#include <ATen/DeviceAccelerator.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace sim = looptorch_test::accelerator;

namespace {

const at::Device kDevice = sim::device(0);
const at::TensorOptions kHere = at::TensorOptions().device(kDevice);

bool has_context(int index) {
  return at::detail::getPrivateUse1Hooks().hasPrimaryContext(static_cast<at::DeviceIndex>(index));
}

TEST_CASE("sim: the n-th allocation fails, and the next one works") {
  const sim::With with({.fail_allocation_at = 2});
  const at::Tensor a = at::empty({4}, kHere);
  CHECK_THROWS_AS(at::empty({4}, kHere), c10::OutOfMemoryError);
  CHECK(at::empty({4}, kHere).numel() == 4);
  sim::configure({.fail_allocation_at = 1});  // counts anew
  CHECK_THROWS_AS(a + 1, c10::OutOfMemoryError);
  CHECK((a + 1).numel() == 4);
}

/// Computes a little, with copies both ways.
double work() {
  const at::Tensor a = at::arange(4, at::kFloat).pin_memory().to(kDevice, /*non_blocking=*/true) * 2;
  at::Tensor host = at::empty({4}, at::TensorOptions().pinned_memory(true));
  host.copy_(a.exp(), /*non_blocking=*/true);
  sim::synchronize(kDevice);
  return host.sum().item<double>() + a.sum().item<double>();
}

TEST_CASE(
    "sim: each failure hits the n-th of what is counted, leaves no memory in use, and the next run is right") {
  for (const bool behind : {false, true}) {
    const double expected = work();
    sim::finish_all();
    const std::int64_t used = sim::allocated_bytes(0), pinned = sim::pinned_bytes();
    sim::CountWaits count;
    (void)work();
    const sim::Counts counts = count.counts();
    const auto sweep = [&](std::int64_t sim::Options::*failure, std::int64_t times) {
      CHECK(times > 0);
      for (std::int64_t n = 1; n <= times + 1; ++n) {
        sim::Options options{.behind_host = behind, .seed = static_cast<std::uint64_t>(n)};
        options.*failure = n;
        {
          const sim::With with(options);
          if (n <= times)
            CHECK_THROWS_AS(work(), c10::Error);
          else
            CHECK(work() == expected);
        }
        CHECK(sim::allocated_bytes(0) == used);
        CHECK(sim::pinned_bytes() == pinned);
        CHECK(work() == expected);
      }
    };
    sweep(&sim::Options::fail_allocation_at, counts.allocations);
    sweep(&sim::Options::fail_pinning_at, counts.pinnings);
    sweep(&sim::Options::fail_launch_at, counts.launches);
    sweep(&sim::Options::fail_kernel_at, counts.kernels);
    CHECK(sim::violations().empty());
  }
}

TEST_CASE("sim: the n-th launch is refused, and the next one works") {
  const at::Tensor a = at::ones({4}, kHere);
  const sim::With with({.fail_launch_at = 2});
  const at::Tensor b = a + 1;
  CHECK_THROWS_AS(a + 1, sim::AcceleratorError);
  CHECK((a + b)[0].item<float>() == 3);
  sim::configure({.fail_launch_at = 1});
  CHECK_THROWS_WITH(
      a.cpu(), Catch::Contains("CUDA error: too many resources requested for launch of copy to the host"));
}

TEST_CASE(
    "sim: a kernel that fails on its device makes every later call for the device fail, as CUDA's errors do") {
  const at::Tensor elsewhere = at::ones({4}, kHere.device(sim::device(1)));
  for (const bool behind : {false, true}) {
    const at::Tensor host = at::ones({4}).pin_memory();
    const sim::With with({.behind_host = behind, .seed = 2, .fail_kernel_at = 4});
    const c10::impl::VirtualGuardImpl guard(sim::kDeviceType);
    at::Tensor used_aside = at::ones({4}, kHere);
    sim::synchronize(kDevice);
    {
      const c10::StreamGuard aside(guard.getStreamFromGlobalPool(kDevice));
      (void)(used_aside + 1);
    }
    at::Tensor a = at::ones({4}, kHere);
    at::Tensor b = a + 1;  // fails
    CHECK_THROWS_AS(sim::synchronize(kDevice), sim::AcceleratorError);
    CHECK_THROWS_WITH(a + 1,
                      Catch::Contains("CUDA error: device-side assert triggered: aten::add.out (simulated)"));
    CHECK_THROWS_AS(b.cpu(), sim::AcceleratorError);
    CHECK_THROWS_AS(host.to(kDevice, /*non_blocking=*/true), sim::AcceleratorError);
    c10::Event event(sim::kDeviceType);
    CHECK_THROWS_AS(event.record(guard.getStream(kDevice)), sim::AcceleratorError);
    a.reset(), b.reset(), used_aside.reset();  // frees work
    CHECK(sim::violations().empty());
    CHECK((elsewhere + 1)[0].item<float>() == 2);
    sim::configure({.behind_host = behind});
    CHECK((at::ones({4}, kHere) + 1)[0].item<float>() == 2);
  }
}

TEST_CASE("sim: behind the host, an error shows when the kernel's turn has come") {
  int later = 0;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const sim::With with({.behind_host = true, .seed = seed, .fail_kernel_at = 2});
    at::Tensor a = at::ones({4}, kHere);
    int issued = 1;
    try {
      for (; issued < 50; ++issued) a.add_(1);
      CHECK_THROWS_AS(a.cpu(), sim::AcceleratorError);
    } catch (const sim::AcceleratorError&) {
    }
    CHECK(issued >= 2);
    later += issued > 3;
  }
  CHECK(later > 0);
}

TEST_CASE("sim: an index out of range fails on the device") {
  const sim::With with({.behind_host = true, .seed = 0});
  const at::Tensor table = at::ones({3, 2}, kHere), host = at::full({1}, 1, at::kLong).pin_memory();
  const at::Tensor row = host.to(kDevice, /*non_blocking=*/true);
  const at::Tensor found = at::embedding(table, row);
  host.fill_(7);  // too early: the copy reads 7
  CHECK_THROWS_WITH(found.cpu(), Catch::Contains("index out of range"));
  CHECK_FALSE(sim::take_violations().empty());
}

TEST_CASE("sim: pinning fails, always or once") {
  const sim::With with({.pinning_fails = true});
  CHECK_THROWS_AS(at::ones({3}).pin_memory(), sim::AcceleratorError);
  CHECK_THROWS_WITH(at::ones({3}).pin_memory(),
                    Catch::Contains("CUDA error: out of memory: 12 bytes cannot be pinned"));
  sim::configure({.fail_pinning_at = 2});
  const at::Tensor first = at::ones({3}).pin_memory();
  CHECK_THROWS_AS(at::ones({3}).pin_memory(), sim::AcceleratorError);
  CHECK(at::ones({3}).pin_memory().is_pinned());
}

TEST_CASE("sim: a device has a context once it is used") {
  const sim::With with({});
  CHECK_FALSE(has_context(1));
  sim::CountWaits count;
  CHECK(at::accelerator::deviceCount() == 2);
  CHECK_FALSE(has_context(1));
  (void)at::empty({1}, kHere.device(sim::device(1)));
  CHECK(has_context(1));
  CHECK(count.counts().contexts == 1);
  sim::configure({});
  { const c10::DeviceGuard guard(sim::device(0)); }
  CHECK_FALSE(has_context(0));  // it was current
  { const c10::DeviceGuard guard(sim::device(1)); }
  CHECK(has_context(1));
  CHECK_FALSE(has_context(0));
  sim::configure({.contexts_created = true});
  CHECK(has_context(0));
  CHECK(has_context(1));
}

TEST_CASE("sim: an event of another device creates a context on the current one") {
  const sim::With with({});
  const c10::Stream stream(c10::Stream::DEFAULT, sim::device(1));
  const auto leaves_none = [&](auto&& use) {
    sim::configure({});
    use();
    return !has_context(0);
  };
  c10::Event recorded(sim::kDeviceType);
  CHECK_FALSE(leaves_none([&] { recorded.record(stream); }));
  CHECK_FALSE(leaves_none([&] { recorded.block(stream); }));
  CHECK(leaves_none([&] { recorded.synchronize(); }));
  CHECK_FALSE(leaves_none([&] { const c10::Event destroyed = std::move(recorded); }));
}

TEST_CASE("sim: fewer devices") {
  (void)at::ones({1}, kHere)
      .requires_grad_()
      .sum()
      .backward();  // the engine's threads are those of two devices
  {
    const sim::With with({.devices = 1});
    CHECK(at::accelerator::deviceCount() == 1);
    CHECK_THROWS_WITH(at::empty({1}, kHere.device(sim::device(1))),
                      Catch::Contains("invalid device ordinal"));
    sim::configure({.devices = 0});
    CHECK(at::accelerator::deviceCount() == 0);
  }
  CHECK(at::accelerator::deviceCount() == 2);
  CHECK_THROWS_WITH(sim::configure({.devices = 3}), Catch::Contains("2 is the most"));
}

}  // namespace
