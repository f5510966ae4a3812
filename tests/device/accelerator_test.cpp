// SPDX-License-Identifier: MIT
// What the library and its programs ask of an accelerator, whatever its type.
// Tests base/device: accelerator
// Tests app: device
#include "support/precompiled.hpp"

#include <looptorch/app/device.hpp>
#include <looptorch/base/device/accelerator.hpp>
#include <looptorch/memory/empty_cache.hpp>

#include "support/device.hpp"

#include <algorithm>
#include <string>

using namespace looptorch::testing;
using namespace looptorch::detail;
using looptorch::app::choose_device;

namespace {

std::string name() { return c10::DeviceTypeName(test_device().type(), /*lower_case=*/true); }

}  // namespace

TEST_CASE("the device under test is the process's accelerator") {
  if (!has_device()) return;
  CHECK(is_accelerator(test_device()));
  CHECK_FALSE(is_accelerator(at::kCPU));
  CHECK(accelerator_here() == test_device().type());
  const at::Tensor used = torch::ones({2}, test_device());
  const auto in_use = accelerators_in_use();
  CHECK(std::count(in_use.begin(), in_use.end(), test_device()) == 1);
}

TEST_CASE("devices that have not been used are not in use") {
  if (!has_device() || !is_simulated()) return;
  looptorch_test::accelerator::configure({});  // forgets contexts without tensors
  CHECK(accelerators_in_use().empty());
  const at::Tensor used = torch::ones({2}, test_device(1));
  const auto in_use = accelerators_in_use();
  REQUIRE(in_use.size() == 1);
  CHECK(in_use.front() == test_device(1));
}

TEST_CASE("a device without an index is the current one, and has other streams than the current one") {
  if (!has_device()) return;
  CHECK(with_index(at::Device(test_device().type())) == test_device());
  CHECK(with_index(test_device()) == test_device());
  CHECK(stream_of(test_device()) != stream_from_pool(test_device()));
}

TEST_CASE("a program runs on the accelerator by default, and by its name and number") {
  if (!has_device()) return;
  CHECK(choose_device("auto") == test_device());
  CHECK(choose_device(name()) == test_device());
  CHECK(choose_device(name() + ":0") == test_device());
  CHECK(choose_device("cpu") == at::Device(at::kCPU));
  CHECK_THROWS_WITH(choose_device(name() + ":99"), Catch::Contains("there is no " + name() + ":99; "));
  CHECK_THROWS_WITH(choose_device("tpu"),
                    Catch::Contains("is not cpu, " + name() + ", " + name() + ":N or auto"));
}

TEST_CASE("the peak of a device's memory covers its tensors, and no others") {
  if (!has_device()) return;
  const auto bytes = [] { return looptorch::app::peak_bytes(test_device()); };
  const at::Tensor first = torch::ones({1 << 20}, at::TensorOptions(at::kByte).device(test_device()));
  const auto before = bytes();
  const at::Tensor host = torch::ones({1 << 26}, at::kByte);
  CHECK(bytes() == before);
  const at::Tensor larger =
      torch::ones({before + (1 << 20)}, at::TensorOptions(at::kByte).device(test_device()));
  CHECK(bytes() > before + (1 << 20));
}

TEST_CASE("each device's memory is counted, and given back, by itself") {
  if (!has_device(1)) return;
  const auto peak = [](c10::DeviceIndex index) { return looptorch::app::peak_bytes(test_device(index)); };
  const auto before = peak(0);
  {
    const at::Tensor large =
        torch::ones({peak(1) + (32 << 20)}, at::TensorOptions(at::kByte).device(test_device(1)));
  }
  CHECK(peak(1) >= 32 << 20);
  CHECK(peak(0) == before);
  CHECK(looptorch::empty_cache(test_device(1)) >= 32 << 20);
  CHECK(looptorch::empty_cache(test_device(1)) == 0);
}
