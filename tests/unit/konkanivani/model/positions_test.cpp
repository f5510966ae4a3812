// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include "../support.hpp"

#include <cmath>

using namespace konkanivani_test;

TEST_CASE("Positions are interleaved sines and cosines; distances run from the last key to the first") {
  const auto table = konkanivani::position_table(4, 6, at::TensorOptions(at::kFloat));
  for (int64_t t = 0; t < 4; ++t) {
    for (int64_t i = 0; i < 3; ++i) {
      const double angle = static_cast<double>(t) / std::pow(1e4, 2.0 * static_cast<double>(i) / 6);
      CHECK(table[t][2 * i].item<double>() == Approx(std::sin(angle)).margin(1e-6));
      CHECK(table[t][2 * i + 1].item<double>() == Approx(std::cos(angle)).margin(1e-6));
    }
  }
  const auto distances = konkanivani::distance_table(4, 6, at::TensorOptions(at::kFloat));
  CHECK(distances.size(0) == 7);
  CHECK(at::equal(distances.narrow(0, 0, 4).flip(0), table));
  CHECK(distances[6][0].item<double>() == Approx(std::sin(-3.0)));
}

TEST_CASE("Valid places are as many as each length says, none and all included") {
  const auto valid = konkanivani::valid_places(ids({0, 2, 4}), 4);
  CHECK(valid.scalar_type() == at::kBool);
  CHECK(valid.equal(at::tensor({0, 0, 0, 0, 1, 1, 0, 0, 1, 1, 1, 1}).view({3, 4}).to(at::kBool)));
}

TEST_CASE("Tables have the type that is asked for, and one place has one distance") {
  CHECK(konkanivani::position_table(3, 4, at::TensorOptions(at::kDouble)).scalar_type() == at::kDouble);
  const auto one = konkanivani::distance_table(1, 4, at::TensorOptions(at::kHalf));
  CHECK(one.equal(at::tensor({0.0, 1.0, 0.0, 1.0}).to(at::kHalf).view({1, 4})));
}
