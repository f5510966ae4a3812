// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/base/device/device_use.hpp>

#include <chrono>
#include <optional>

using looptorch::detail::device_use_maker;
using looptorch::detail::DeviceUse;
using looptorch::detail::DeviceUseReader;

namespace device_use {

int made = 0, asked = 0;

/// A stand-in for a driver: 0.5, then nothing, then 1.
DeviceUseReader reader(c10::Device) {
  ++made;
  return []() -> std::optional<double> {
    constexpr std::optional<double> kShares[] = {0.5, std::nullopt, 1.0};
    return kShares[asked++ % 3];
  };
}

}  // namespace device_use

TEST_CASE("DeviceUse: a share that was asked for is taken once") {
  const auto before = std::exchange(device_use_maker(at::kCPU), &device_use::reader);
  device_use::made = device_use::asked = 0;
  DeviceUse use(at::kCPU, std::chrono::seconds(0));
  CHECK(use.may_tell());
  CHECK(!use.take());
  use.ask();
  CHECK(use.take() == 0.5);
  CHECK(!use.take());
  use.ask();
  CHECK(!use.take());
  use.ask();
  CHECK(use.take() == 1.0);
  CHECK((device_use::made == 1 && device_use::asked == 3));

  DeviceUse seldom(at::kCPU, std::chrono::hours(1));
  seldom.ask(), seldom.ask(), seldom.ask();
  CHECK((device_use::made == 2 && device_use::asked == 4));
  device_use_maker(at::kCPU) = before;
}

TEST_CASE("DeviceUse: a device that nothing tells of, and one that is not there, say nothing") {
  DeviceUse cpu(at::kCPU);
  CHECK(!cpu.may_tell());
  cpu.ask();
  CHECK(!cpu.take());

  DeviceUse missing(at::Device(at::kCUDA, 99));
  missing.ask();
  CHECK(!missing.take());
}
