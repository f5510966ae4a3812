// SPDX-License-Identifier: MIT
// What each code stands for, against the tables of tests/parity/narrow_optimizers.py, and its rounding.
// Tests optim/narrow: block_loop, adam_numbers, block_codes, coded_tensor, eight_bit_loop
#include "support/precompiled.hpp"

#include <looptorch/optim/narrow/coded_tensor.hpp>
#include <looptorch/optim/narrow/eight_bit_loop.hpp>

#include "support/reference.hpp"

#include <cmath>
#include <vector>

namespace block_codes_test {

using namespace looptorch::detail;

template <class Code>
void check_table(const std::string& name) {
  const at::Tensor& table = reference::tensors("narrow_optimizers").at("eight_bit." + name);
  REQUIRE(table.size(0) == Code::kMask + 1);
  for (std::uint32_t code = 0; code <= Code::kMask; ++code)
    CHECK(Code::decode(static_cast<std::uint8_t>(code), 1.0f) == table[code].item<float>());
}

/// Codes one block as the loop does.
template <class Code>
std::vector<std::uint8_t> codes_of(const at::Tensor& numbers, const at::Tensor& noise) {
  const float factor = factor_of<Code>(numbers.abs().max().item<float>());
  std::vector<std::uint8_t> result;
  for (int64_t i = 0; i < numbers.size(0); ++i)
    result.push_back(
        Code::encode(numbers[i].item<float>(), factor, static_cast<std::uint32_t>(noise[0][i].item<int>())));
  return result;
}

template <class Code>
void check_operations(const at::Tensor& numbers) {
  const auto noise = torch::randint(1 << Code::kDropped, {1, numbers.size(0)}, torch::kInt);
  const CodedTensor coded = encode_tensor<Code>(numbers, noise);
  const auto expected = codes_of<Code>(numbers, noise);
  for (int64_t i = 0; i < numbers.size(0); ++i)
    CHECK(coded.codes[i].item<int>() == expected[static_cast<std::size_t>(i)]);
  const at::Tensor decoded = decode_tensor<Code>(coded);
  const float step = step_of<Code>(coded.scales[0].item<float>());
  for (int64_t i = 0; i < numbers.size(0); ++i)
    CHECK(decoded[i].item<float>() == Approx(Code::decode(expected[static_cast<std::size_t>(i)], step)));
}

TEST_CASE("block codes stand for the numbers of their tables") {
  check_table<SignedCode>("first_table");
  check_table<RootCode>("root_table");
  CHECK(SignedCode::decode(0x80 | 5, 2.0f) == -SignedCode::decode(5, 2.0f));
}

TEST_CASE("a block's codes are the same by operations as by the loop") {
  const auto wave = torch::arange(256, torch::kDouble).sin();
  const auto numbers = (wave * torch::pow(10.0, -torch::arange(256, torch::kDouble) / 40)).to(torch::kFloat);
  check_operations<SignedCode>(numbers);
  check_operations<RootCode>(numbers.abs());
}

TEST_CASE("block codes are right on average, within a step, and never 0 for a root") {
  const float numbers[] = {1.0f, -0.37f, 1e-3f, 2e-5f, -1e-7f};
  for (const float number : numbers) {
    double sum = 0, sum_of_roots = 0, farthest = 0, least = 1;
    constexpr int kDraws = 4096;
    for (int draw = 0; draw < kDraws; ++draw) {
      const auto word = static_cast<std::uint32_t>(block_word(static_cast<std::uint64_t>(draw), 7));
      const float coded = SignedCode::decode(
          SignedCode::encode(number, factor_of<SignedCode>(1.0f), word >> (32 - SignedCode::kDropped)),
          step_of<SignedCode>(1.0f));
      const float root = RootCode::decode(
          RootCode::encode(std::abs(number), factor_of<RootCode>(1.0f), word >> (32 - RootCode::kDropped)),
          step_of<RootCode>(1.0f));
      sum += coded, sum_of_roots += root;
      farthest = std::max(farthest, std::abs(static_cast<double>(coded) - number));
      least = std::min(least, static_cast<double>(root));
    }
    INFO(number);
    CHECK(least > 0);
    const double step = (std::abs(number) + 1.7e-5) / 8;
    CHECK(farthest <= step * 1.001);
    CHECK(std::abs(sum / kDraws - number) < 0.03 * step);
    if (std::abs(number) > 1e-6) CHECK(sum_of_roots / kDraws == Approx(std::abs(number)).epsilon(0.01));
  }
}

TEST_CASE("quick_root is a root within 5e-6") {
  CHECK(quick_root(0.0f) == 0.0f);
  for (float number = 1e-36f; number < 1e36f; number *= 1.7f)
    CHECK(std::abs(quick_root(number) / std::sqrt(number) - 1) < 5e-6f);
}

TEST_CASE("the random bits of blocks are even, and differ by update and block") {
  double sum = 0;
  for (std::uint64_t update = 0; update < 4096; ++update)
    sum += static_cast<double>((kElementWords<0, 16>[3] ^ (block_word(update, 1) & 0xFFFF)));
  CHECK(sum / 4096 == Approx(32767.5).epsilon(0.03));
  CHECK(block_word(1, 2) != block_word(2, 1));
  CHECK(block_word(1, 0) != block_word(0, 1));
}

TEST_CASE("every instruction set updates a block alike") {
  std::vector<float> first_run;
  for (int width = 0; width < 2; ++width) {
    std::vector<float> weights(300, 1.0f), gradients(300), scales(4);
    std::vector<std::uint8_t> codes(600);
    for (std::size_t i = 0; i < gradients.size(); ++i) gradients[i] = std::sin(static_cast<float>(i));
    struct {
      double lr = 1e-2;
      std::array<double, 2> betas{0.9, 0.999};
      double eps = 1e-8, weight_decay = 0.1;
    } options;
    for (std::uint64_t step = 1; step <= 3; ++step) {
      const EightBitLoop<SingleWeight> loop{.weights = weights.data(),
                                            .lost = nullptr,
                                            .gradients = gradients.data(),
                                            .first_codes = codes.data(),
                                            .root_codes = codes.data() + 300,
                                            .first_scales = scales.data(),
                                            .root_scales = scales.data() + 2,
                                            .size = 300,
                                            .update = step,
                                            .numbers = AdamNumbers::of(options, step, 1)};
      width == 0 ? loop.run(0, 2) : run_widest(loop, 0, 2);
    }
    if (width == 0) first_run = weights;
    for (std::size_t i = 0; i < 300; ++i) CHECK(std::abs(weights[i] - first_run[i]) < 2e-3f);
  }
}

}  // namespace block_codes_test
