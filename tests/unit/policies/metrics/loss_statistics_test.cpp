// SPDX-License-Identifier: MIT
// The running mean and deviation of losses beside their definitions, and windows as a tensor.
#include "support/precompiled.hpp"

#include <looptorch/policies/metrics/loss_statistics.hpp>

#include <cmath>
#include <vector>

using namespace looptorch;
using looptorch::detail::LossStatistics;

TEST_CASE(
    "LossStatistics: mean and deviation of all numbers, as PyTorch computes them, while there are few") {
  torch::manual_seed(0);
  const at::Tensor numbers = torch::randn({40}, torch::kDouble) + 3;
  LossStatistics statistics;
  for (std::int64_t i = 0; i < 40; ++i) statistics.add(numbers[i].item<double>(), 40);
  CHECK(std::abs(statistics.mean - numbers.mean().item<double>()) < 1e-12);
  CHECK(std::abs(statistics.variance - numbers.var(/*unbiased=*/false).item<double>()) < 1e-12);
  CHECK(std::abs(statistics.deviations(statistics.mean + 2 * std::sqrt(statistics.variance)) - 2) < 1e-12);
}

TEST_CASE("LossStatistics: later numbers count more, and equal numbers have no deviation") {
  LossStatistics statistics;
  for (int i = 0; i < 10; ++i) statistics.add(5, 4);
  CHECK((statistics.mean == 5 && statistics.deviations(1e9) == 0));
  for (int i = 0; i < 100; ++i) statistics.add(1, 4);
  CHECK(std::abs(statistics.mean - 1) < 1e-9);
}

TEST_CASE("LossStatistics: a number weighs one over `memory` as soon as there are more") {
  LossStatistics statistics;
  for (const double number : {0.0, 0.0, 1.0}) statistics.add(number, 2);
  CHECK(statistics.mean == 0.5);
  CHECK(statistics.variance == 0.25);
}

TEST_CASE("windows are the same once packed and unpacked, and a damaged tensor is refused") {
  const std::vector<WindowPlace> places{
      {.step = 3, .epoch = 1, .first_batch = 2, .last_batch = 4, .samples = {8, 9}}, {.step = 7}};
  const auto again = looptorch::detail::unpacked(looptorch::detail::packed(places));
  REQUIRE(again.size() == 2);
  CHECK((again[0].text() == places[0].text() && again[1].text() == places[1].text()));
  CHECK(again[0].samples == places[0].samples);
  const at::Tensor whole = looptorch::detail::packed(places);
  for (const std::int64_t length : {1, 4, 6, 11})
    CHECK_THROWS_AS(looptorch::detail::unpacked(whole.narrow(0, 0, length)), StateError);
  CHECK_THROWS_AS(looptorch::detail::unpacked(whole.to(at::kFloat)), StateError);
}
