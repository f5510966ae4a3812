// SPDX-License-Identifier: MIT
// Represents a size in an exported program as an integer polynomial of the dynamic sizes. For example,
// attention with H heads reshapes a batch of B clips to B * H rows, and B * H is such a polynomial.
#pragma once

#include <looptorch/export/program/dynamic_dims.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace looptorch {

/// A sum of products of dynamic sizes, each with an integer factor.
class Polynomial {
 public:
  /// The dims of a product, in ascending order; {0, 0, 1} is the square of dim 0 times dim 1, {} is 1.
  using Monomial = std::vector<std::size_t>;

  Polynomial() = default;
  Polynomial(std::int64_t constant) { add({}, constant); }
  [[nodiscard]] static Polynomial of_dim(std::size_t dim) {
    Polynomial one;
    one.add({dim}, 1);
    return one;
  }

  void add(const Monomial& monomial, std::int64_t factor) {
    auto& sum = terms_[monomial];
    sum += factor;
    if (sum == 0) terms_.erase(monomial);
  }

  [[nodiscard]] const std::map<Monomial, std::int64_t>& terms() const { return terms_; }
  [[nodiscard]] bool is_constant() const {
    return terms_.empty() || (terms_.size() == 1 && terms_.begin()->first.empty());
  }
  /// Returns the term without dims.
  [[nodiscard]] std::int64_t constant() const {
    const auto found = terms_.find({});
    return found == terms_.end() ? 0 : found->second;
  }

  [[nodiscard]] static std::int64_t value(const Monomial& monomial, const DimValues& dims) {
    std::int64_t product = 1;
    for (const std::size_t dim : monomial) product *= dims.at(dim);
    return product;
  }
  [[nodiscard]] std::int64_t at(const DimValues& dims) const {
    std::int64_t sum = 0;
    for (const auto& [monomial, factor] : terms_) sum += factor * value(monomial, dims);
    return sum;
  }

  friend Polynomial operator*(const Polynomial& a, const Polynomial& b) {
    Polynomial product;
    for (const auto& [left, x] : a.terms_)
      for (const auto& [right, y] : b.terms_) {
        Monomial both = left;
        both.insert(both.end(), right.begin(), right.end());
        std::sort(both.begin(), both.end());
        product.add(both, x * y);
      }
    return product;
  }
  friend bool operator==(const Polynomial&, const Polynomial&) = default;
  friend auto operator<=>(const Polynomial& a, const Polynomial& b) { return a.terms_ <=> b.terms_; }

 private:
  std::map<Monomial, std::int64_t> terms_;
};

}  // namespace looptorch
