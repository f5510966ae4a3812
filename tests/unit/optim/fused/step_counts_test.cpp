// SPDX-License-Identifier: MIT
// Shared step counts: equal to counts of their own whatever sets of parameters are updated, and few.
// Runs on every device.
#include "support/precompiled.hpp"

#include <looptorch/optim/fused/step_counts.hpp>

#include "support/place.hpp"

#include <set>

namespace {

using looptorch::detail::advance_counts;
using looptorch::testing::placed;

std::vector<double> numbers(const std::vector<at::Tensor>& counts) {
  std::vector<double> result;
  for (const auto& count : counts) result.push_back(count.defined() ? count.item<double>() : -1);
  return result;
}

std::size_t distinct(const std::vector<at::Tensor>& counts) {
  std::set<const void*> seen;
  for (const auto& count : counts) seen.insert(count.unsafeGetTensorImpl());
  return seen.size();
}

}  // namespace

TEST_CASE("parameters that are updated together keep one count") {
  std::vector<at::Tensor> counts(5, placed(torch::zeros({})));
  for (int i = 0; i < 3; ++i) advance_counts(counts, {0, 1, 2, 3, 4}, {});
  CHECK(numbers(counts) == std::vector<double>(5, 3.0));
  CHECK(distinct(counts) == 1);
}

TEST_CASE("parameters without an update keep their count, and never share another's again") {
  std::vector<at::Tensor> counts(4, placed(torch::zeros({})));
  counts.emplace_back();  // a parameter that never had a gradient
  advance_counts(counts, {0, 1, 2, 3}, {});
  advance_counts(counts, {0, 2}, {});
  CHECK(numbers(counts) == std::vector<double>{2, 1, 2, 1, -1});
  advance_counts(counts, {0, 1, 2, 3}, {});
  CHECK(numbers(counts) == std::vector<double>{3, 2, 3, 2, -1});
  CHECK(distinct(counts) == 3);
  advance_counts(counts, {3}, {});
  CHECK(numbers(counts) == std::vector<double>{3, 2, 3, 3, -1});
}

TEST_CASE("of many counts an update reads only those that it advances") {
  std::vector<at::Tensor> counts;
  for (int i = 0; i < 8; ++i) counts.push_back(placed(torch::zeros({})));
  counts.push_back(counts[5]);
  for (const looptorch::detail::SharedCount& shared : looptorch::detail::SharedCounts(counts, {5})) {
    CHECK(shared.tensor.is_same(counts[5]));
    CHECK(shared.due == 1);
    CHECK(shared.holders == 2);
  }
}

TEST_CASE("an overflowed step is not counted") {
  std::vector<at::Tensor> counts(3, placed(torch::zeros({})));
  advance_counts(counts, {0, 1, 2}, placed(torch::tensor(0.0f)));
  advance_counts(counts, {0, 2}, placed(torch::tensor(1.0f)));
  CHECK(numbers(counts) == std::vector<double>{1, 1, 1});
  advance_counts(counts, {0, 2}, placed(torch::tensor(0.0f)));
  CHECK(numbers(counts) == std::vector<double>{2, 1, 2});
}

TEST_CASE("any sequence of subsets counts as counts of their own do") {
  constexpr std::size_t kCount = 9;
  std::vector<at::Tensor> counts(kCount, placed(torch::zeros({})));
  std::vector<double> expected(kCount, 0.0);
  uint32_t state = 1;
  for (int step = 0; step < 60; ++step) {
    state = state * 1664525u + 1013904223u;
    std::vector<std::size_t> due;
    for (std::size_t i = 0; i < kCount; ++i)
      if ((state >> (i + 8)) & 1) due.push_back(i);
    if (due.empty()) continue;
    const bool overflowed = step % 5 == 4;
    advance_counts(counts, due, placed(torch::tensor(overflowed ? 1.0f : 0.0f)));
    for (const std::size_t i : due) expected[i] += overflowed ? 0 : 1;
    REQUIRE(numbers(counts) == expected);
  }
}
