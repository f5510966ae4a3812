// SPDX-License-Identifier: MIT
// Tests export/program: polynomial_fit
#include <looptorch/export/program/polynomial.hpp>
#include <looptorch/export/program/polynomial_fit.hpp>

#include "support/catch.hpp"

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace lt = looptorch;

namespace {

using Number = std::function<std::int64_t(const lt::DimValues&)>;

std::optional<lt::Polynomial> fitted(const lt::DimValues& start, const Number& number) {
  const lt::detail::PolynomialFit fit(start, std::vector<std::int64_t>(start.size(), 1));
  std::vector<std::int64_t> numbers;
  for (const auto& point : fit.points()) numbers.push_back(number(point));
  return fit(numbers);
}

}  // namespace

TEST_CASE("a polynomial adds, multiplies and has values") {
  const auto b = lt::Polynomial::of_dim(0), t = lt::Polynomial::of_dim(1);
  auto sum = b * t;
  sum.add({}, 3);
  CHECK(sum.at({4, 5}) == 23);
  CHECK((sum * b).at({4, 5}) == 92);
  CHECK(sum.constant() == 3);
  CHECK_FALSE(sum.is_constant());
  sum.add({0, 1}, -1);
  CHECK(sum == lt::Polynomial(3));
  CHECK(lt::Polynomial(0).is_constant());
}

TEST_CASE("numbers of two and three sizes are fitted and hold elsewhere") {
  const Number products = [](const lt::DimValues& d) { return 3 * d[0] * d[1] - d[1] + 7; };
  const auto two = fitted({3, 40}, products);
  REQUIRE(two);
  CHECK(two->at({11, 1500}) == products({11, 1500}));
  const Number square = [](const lt::DimValues& d) { return d[2] * d[2] - 4 * d[0] * d[2] + d[1]; };
  const auto three = fitted({2, 7, 100}, square);
  REQUIRE(three);
  CHECK(three->at({5, 6, 7}) == square({5, 6, 7}));
  CHECK(fitted({5}, [](const lt::DimValues&) { return 12; }) == lt::Polynomial(12));
  CHECK(fitted({}, [](const lt::DimValues&) { return 12; }) == lt::Polynomial(12));
}

TEST_CASE("numbers that follow no polynomial of degree two are not fitted") {
  CHECK_FALSE(fitted({5}, [](const lt::DimValues& d) { return d[0] / 2; }));
  CHECK_FALSE(fitted({4}, [](const lt::DimValues& d) { return d[0] / 2; }));
  CHECK_FALSE(fitted({3, 5}, [](const lt::DimValues& d) { return (d[1] + 1) / 2 * d[0]; }));
  CHECK_FALSE(fitted({3}, [](const lt::DimValues& d) { return d[0] * d[0] * d[0]; }));
  CHECK_FALSE(fitted({3}, [](const lt::DimValues& d) { return d[0] > 4 ? 1 : 0; }));
}

TEST_CASE("points below the start fit as well as points above it") {
  const lt::detail::PolynomialFit fit({1500}, {-1});
  std::vector<std::int64_t> numbers;
  for (const auto& point : fit.points()) {
    CHECK(point[0] <= 1500);
    numbers.push_back(2 * point[0] + 1);
  }
  CHECK(fit(numbers)->at({10}) == 21);
}
