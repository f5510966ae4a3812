// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/base/device/readback.hpp>

TEST_CASE("a readback holds the number as it was when it was asked for") {
  looptorch::detail::Readback readback;
  CHECK_FALSE(readback.under_way());
  auto value = torch::full({}, 3.0);
  readback.start(value);
  value.fill_(5.0);
  CHECK(readback.under_way());
  CHECK(readback.take() == 3.0);
  CHECK_FALSE(readback.under_way());
  readback.start(torch::ones({}, torch::kBool));
  readback.start(torch::zeros({1}, torch::kInt));  // the last one asked for counts
  CHECK(readback.take() == 0.0);
  for (const at::ScalarType type : {at::kBool, at::kFloat, at::kDouble, at::kHalf, at::kInt}) {
    readback.start(torch::ones({3}, type)[1]);
    CHECK(readback.take() == 1.0);
  }
}
