// SPDX-License-Identifier: MIT
// bf16 numbers and their rounding, against ATen's.
#include "support/precompiled.hpp"

#include <looptorch/optim/narrow/bf16_loop.hpp>

namespace bf16_loop_test {
using namespace looptorch::detail;
}  // namespace bf16_loop_test

TEST_CASE("bf16 numbers widen to what ATen makes of them, and round to a neighbour") {
  using namespace bf16_loop_test;
  for (const float number : {1.0f, -3.14159f, 1e-20f, 65504.0f, 0.0f}) {
    const auto narrow = static_cast<c10::BFloat16>(number);
    CHECK(widen_bf16(narrow.x) == static_cast<float>(narrow));
    const float low = widen_bf16(round_bf16(number, 0)), high = widen_bf16(round_bf16(number, 0xFFFF));
    CHECK(std::abs(low) <= std::abs(number));
    CHECK(std::abs(high) >= std::abs(number));
    CHECK(std::abs(high - low) <= std::abs(number) / 128);
  }
}

TEST_CASE("a split weight is the fp32 number") {
  using namespace bf16_loop_test;
  for (const float number : {1.0f, -3.14159f, 1e-20f, 65504.0f, 1.00390625f, -0.0f, 3.0e38f}) {
    std::uint16_t stored = 0;
    std::int16_t lost = 0;
    SplitWeight::store(number, 0, stored, lost);
    CHECK(SplitWeight::load(stored, lost) == number);
    CHECK(std::abs(widen_bf16(stored) - number) <= std::abs(number) / 256);
  }
}
