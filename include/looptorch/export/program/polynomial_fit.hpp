// SPDX-License-Identifier: MIT
// Finds the polynomial by which a number in a traced program depends on the dynamic sizes. The number is
// observed at chosen sizes, a polynomial is fitted to the values, and one more value checks it. A polynomial
// of degree 2 in n dynamic sizes takes (n + 1)(n + 2)/2 values besides this last one.
#pragma once

#include <looptorch/export/program/polynomial.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace looptorch::detail {

/// Returns the products of at most two of `dims` dims.
[[nodiscard]] inline std::vector<Polynomial::Monomial> products_of_two(std::size_t dims) {
  std::vector<Polynomial::Monomial> all{{}};
  for (std::size_t i = 0; i < dims; ++i) {
    all.push_back({i});
    for (std::size_t j = i; j < dims; ++j) all.push_back({i, j});
  }
  return all;
}

/// Fits numbers by polynomials of degree 2 in the dims, at points that it chooses.
class PolynomialFit {
 public:
  /// The points begin at `start`. `direction` of a dim is 1 or -1: towards larger or smaller sizes.
  PolynomialFit(const DimValues& start, const std::vector<std::int64_t>& direction)
      : monomials_(products_of_two(start.size())) {
    for (const auto& monomial : monomials_) {
      points_.push_back(start);
      for (const std::size_t dim : monomial) points_.back()[dim] += direction[dim];
    }
    points_.push_back(start);
    for (std::size_t i = 0; i < start.size(); ++i) points_.back()[i] += direction[i] * reach(i);
    invert();
  }

  /// Returns how far the last point is from the start in this dim; no other point is as far.
  [[nodiscard]] static std::int64_t reach(std::size_t dim) { return 3 + static_cast<std::int64_t>(dim); }

  /// Returns the sizes at which to observe the numbers; the last one only checks the fit.
  [[nodiscard]] const std::vector<DimValues>& points() const { return points_; }

  /// Returns the polynomial with these values at the points; nothing if its coefficients are not integers.
  [[nodiscard]] std::optional<Polynomial> operator()(const std::vector<std::int64_t>& numbers) const {
    if (std::equal(numbers.begin() + 1, numbers.end(), numbers.begin())) return Polynomial(numbers[0]);
    Polynomial found;
    for (std::size_t m = 0; m < monomials_.size(); ++m) {
      double factor = 0;
      for (std::size_t p = 0; p < monomials_.size(); ++p)
        factor += inverse_[m][p] * static_cast<double>(numbers[p]);
      if (const auto rounded = static_cast<std::int64_t>(std::llround(factor)); rounded != 0)
        found.add(monomials_[m], rounded);
    }
    return fits(found, numbers) ? std::optional(found) : std::nullopt;
  }

  [[nodiscard]] bool fits(const Polynomial& polynomial, const std::vector<std::int64_t>& numbers) const {
    for (std::size_t i = 0; i < numbers.size(); ++i)
      if (polynomial.at(points_[i]) != numbers[i]) return false;
    return true;
  }

 private:
  /// Inverts the matrix of the monomials' values at the points, by Gauss and Jordan with pivots.
  void invert() {
    const std::size_t n = monomials_.size();
    std::vector<std::vector<double>> rows(n, std::vector<double>(2 * n, 0.0));
    for (std::size_t p = 0; p < n; ++p) {
      for (std::size_t m = 0; m < n; ++m)
        rows[p][m] = static_cast<double>(Polynomial::value(monomials_[m], points_[p]));
      rows[p][n + p] = 1;
    }
    for (std::size_t column = 0; column < n; ++column) {
      const auto largest = std::max_element(
          rows.begin() + static_cast<std::ptrdiff_t>(column), rows.end(),
          [&](const auto& a, const auto& b) { return std::abs(a[column]) < std::abs(b[column]); });
      std::swap(rows[column], *largest);
      const double pivot = rows[column][column];
      for (double& x : rows[column]) x /= pivot;
      for (std::size_t row = 0; row < n; ++row) {
        if (row == column) continue;
        const double factor = rows[row][column];
        for (std::size_t i = 0; i < 2 * n; ++i) rows[row][i] -= factor * rows[column][i];
      }
    }
    for (auto& row : rows) inverse_.emplace_back(row.begin() + static_cast<std::ptrdiff_t>(n), row.end());
  }

  std::vector<Polynomial::Monomial> monomials_;
  std::vector<DimValues> points_;
  std::vector<std::vector<double>> inverse_;  ///< by monomial and point
};

}  // namespace looptorch::detail
