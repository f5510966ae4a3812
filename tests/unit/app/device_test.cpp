// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/app/device.hpp>

#include <cstdint>

using Catch::Contains;
using looptorch::app::choose_device;

TEST_CASE("A device is chosen by its name, and an absent one is refused") {
  CHECK(choose_device("cpu") == at::Device(at::kCPU));
  CHECK(choose_device("auto").is_cuda() == torch::cuda::is_available());
  CHECK_THROWS_AS(choose_device("tpu"), looptorch::UsageError);
  CHECK_THROWS_WITH(choose_device("tpu"), "--device: \"tpu\" is not cpu, cuda, cuda:N or auto");
  CHECK_THROWS_WITH(choose_device("cuda:first"), Contains("\"cuda:first\" is not cpu, cuda, cuda:N or auto"));
  CHECK_THROWS_AS(choose_device("meta"), looptorch::UsageError);
  CHECK_THROWS_WITH(choose_device("cuda:99"), Contains("--device: there is no cuda:99; CUDA devices here: "));
}

TEST_CASE("The peak of a process's memory covers what it has touched") {
  const auto before = looptorch::app::peak_bytes(at::kCPU);
  const auto tensor = at::ones({64 << 20}, at::kByte);
  CHECK(before > 0);
  CHECK(looptorch::app::peak_bytes(at::kCPU) >= before);
  CHECK(looptorch::app::peak_bytes(at::kCPU) >= static_cast<std::int64_t>(tensor.nbytes()));
}
