// SPDX-License-Identifier: MIT
// Numbers in 16 bits and their rounding, against ATen's.
#include "support/precompiled.hpp"

#include <looptorch/optim/fused/rounded_weight.hpp>
#include <looptorch/optim/narrow/rounded_sum.hpp>
#include <looptorch/optim/narrow/stored_weights.hpp>

namespace stored_weights_test {
using namespace looptorch::detail;

TEST_CASE("bf16 numbers widen to what ATen makes of them, and round to a neighbour") {
  for (const float number : {1.0f, -3.14159f, 1e-20f, 65504.0f, 0.0f}) {
    const auto narrow = static_cast<c10::BFloat16>(number);
    CHECK(widen_bf16(narrow.x) == static_cast<float>(narrow));
    const float low = widen_bf16(round_bf16(number, 0)), high = widen_bf16(round_bf16(number, 0xFFFF));
    CHECK(std::abs(low) <= std::abs(number));
    CHECK(std::abs(high) >= std::abs(number));
    CHECK(std::abs(high - low) <= std::abs(number) / 128);
  }
}

TEST_CASE("each fp16 number widens to what ATen makes of it, and stays itself whatever the random bits") {
  int wrong = 0;
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const c10::Half number(static_cast<std::uint16_t>(bits), c10::Half::from_bits());
    const float wide = widen_fp16(number.x), expected = static_cast<float>(number);
    if (std::isnan(expected)) {
      wrong += !std::isnan(wide) || !std::isnan(widen_fp16(round_fp16(wide, 0xFFFF)));
      continue;
    }
    wrong += std::bit_cast<std::uint32_t>(wide) != std::bit_cast<std::uint32_t>(expected);
    for (const std::uint32_t noise : {0u, 0x8000u, 0xFFFFu}) wrong += round_fp16(wide, noise) != number.x;
  }
  CHECK(wrong == 0);
}

TEST_CASE("a number rounds to its two neighbours in fp16, and on average to itself") {
  for (const float number : {1.0003f, -3.14159f, 65000.5f, 6.2e-5f, 6.0e-5f, -1e-6f, 3e-8f, 1e-9f, 0.0f}) {
    double sum = 0;
    float low = INFINITY, high = 0;
    for (std::uint32_t noise = 0; noise < 0x10000; noise += 8) {
      const float rounded = widen_fp16(round_fp16(number, noise));
      sum += rounded, low = std::min(low, std::abs(rounded)), high = std::max(high, std::abs(rounded));
    }
    CAPTURE(number, low, high);
    const float size = std::abs(number), step = std::max(size * 0x1p-10f, 0x1p-24f);
    CHECK(low <= size);
    CHECK(high >= size - step * 0x1p-13f);  // a number nearer to the lower one than the random bits reach
    CHECK(high - low <= step);
    CHECK(std::abs(sum / 8192 - number) <= step * 0x1p-13);
  }
  CHECK(round_fp16(1e6f, 0) == 0x7C00);
  CHECK(round_fp16(-INFINITY, 0xFFFF) == 0xFC00);
  CHECK(widen_fp16(round_fp16(65519.0f, 0)) == 65504.0f);
}

/// NaNs as x86 and NVIDIA's GPUs compute them, and others: adding to the bits of some makes a zero.
const std::uint32_t kNans[] = {0x7FFFFFFFu, 0xFFFFFFFFu, 0x7FC00000u, 0xFFC00000u, 0x7F800001u, 0xFFBFFFFFu};

TEST_CASE("a NaN of any bits stays a NaN in 16 bits") {
  for (const std::uint32_t bits : kNans) {
    const float nan = std::bit_cast<float>(bits);
    for (const std::uint32_t noise : {0u, 1u, 0x8000u, 0xFFFFu}) {
      CAPTURE(bits, noise);
      CHECK(std::isnan(widen_bf16(round_bf16(nan, noise))));
      CHECK(std::isnan(widen_fp16(round_fp16(nan, noise))));
      std::uint16_t stored = 0;
      std::int16_t lost = 0;
      SplitWeight::store(nan, noise, stored, lost);
      CHECK((std::isnan(widen_bf16(stored)) && std::isnan(SplitWeight::load(stored, lost))));
      std::int8_t byte = 0;
      CorrectedWeight::store(nan, noise, stored, byte);
      CHECK((std::isnan(widen_bf16(stored)) && std::isnan(CorrectedWeight::load(stored, byte))));
    }
    const at::Tensor nans = at::full({1000}, static_cast<std::int32_t>(bits), at::kInt).view(at::kFloat);
    for (const auto type : {at::kBFloat16, at::kHalf}) {
      CHECK(rounded_tensor(nans, type, rounding_noise(nans)).isnan().all().item<bool>());
      const at::Tensor by_loop = at::ones({1000}, type), by_operations = by_loop.clone();
      add_rounded(by_loop, nans, 7),
          add_rounded_by(by_operations, nans, at::detail::getDefaultCPUGenerator());
      CHECK((by_loop.isnan().all().item<bool>() && by_operations.isnan().all().item<bool>()));
    }
    const at::Tensor weight = at::ones({1000}, at::kBFloat16), lost = at::zeros({1000}, at::kChar);
    split_corrected(weight, lost, nans, FusedFactors({}, {}), at::ones({}, at::kDouble));
    CHECK(weight.isnan().all().item<bool>());
  }
  CHECK(round_bf16(INFINITY, 0xFFFF) == 0x7F80);
  CHECK(round_bf16(-INFINITY, 0xFFFF) == 0xFF80);
}

TEST_CASE("tensor operations round as loops do") {
  const at::Tensor numbers = at::cat({at::randn({1000}), at::randn({1000}) * 1e-5, at::randn({1000}) * 1e-7,
                                      at::tensor({0.0f, 65519.0f, -7e4f, INFINITY})});
  const at::Tensor noise = rounding_noise(numbers);
  for (const auto type : {at::kHalf, at::kBFloat16}) {
    const at::Tensor rounded = rounded_tensor(numbers, type, noise);
    int wrong = 0;
    for (std::int64_t i = 0; i < numbers.numel(); ++i) {
      const float number = numbers[i].item<float>();
      const auto random = static_cast<std::uint32_t>(noise[i].item<int>());
      const float expected =
          type == at::kHalf ? widen_fp16(round_fp16(number, random)) : widen_bf16(round_bf16(number, random));
      wrong += rounded[i].to(type).item<float>() != expected;
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("a sum in fp16 keeps addends that rounding to the nearest loses") {
  const at::Tensor sum = at::ones({20000}, at::kHalf);
  for (std::uint64_t i = 0; i < 20; ++i) add_rounded(sum, at::full({20000}, 1e-5), i);
  CHECK(sum.to(at::kDouble).mean().item<double>() == Approx(1 + 20e-5).margin(2e-5));
}

TEST_CASE("a split weight is the fp32 number") {
  for (const float number : {1.0f, -3.14159f, 1e-20f, 65504.0f, 1.00390625f, -0.0f, 3.0e38f}) {
    std::uint16_t stored = 0;
    std::int16_t lost = 0;
    SplitWeight::store(number, 0, stored, lost);
    CHECK(SplitWeight::load(stored, lost) == number);
    CHECK(std::abs(widen_bf16(stored) - number) <= std::abs(number) / 256);
  }
}

}  // namespace stored_weights_test
