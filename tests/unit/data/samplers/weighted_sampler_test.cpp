// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/data/samplers/sampler.hpp>
#include <looptorch/data/samplers/weighted_sampler.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

using namespace looptorch;
using Indices = std::vector<std::int64_t>;

static_assert(Sampler<WeightedSampler> && !BatchSampler<WeightedSampler>);

namespace {

/// How often each index comes in `epochs` epochs.
std::map<std::int64_t, double> frequencies(const WeightedSampler& sampler, std::int64_t size,
                                           std::int64_t epochs) {
  std::map<std::int64_t, double> seen;
  for (std::int64_t epoch = 0; epoch < epochs; ++epoch)
    for (const std::int64_t index : sampler.order(epoch, size)) ++seen[index];
  return seen;
}

}  // namespace

TEST_CASE("with replacement samples come in proportion to their weights") {
  const std::vector<double> weights{1, 0, 5, 0.5, 3.5};
  const WeightedSampler sampler(weights, {.draws = 100'000, .seed = 3});
  CHECK(sampler.count(5) == 100'000);
  auto seen = frequencies(sampler, 5, 1);
  CHECK(seen.count(1) == 0);
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const double chance = weights[i] / 10;
    CHECK(std::abs(seen[std::int64_t(i)] - 1e5 * chance) <= 5 * std::sqrt(1e5 * chance * (1 - chance)));
  }
}

TEST_CASE("without replacement each draw is by weight among the samples that are left") {
  const WeightedSampler sampler({1, 2, 0, 3}, {.draws = 2, .replacement = false, .seed = 1});
  std::map<Indices, int> seen;
  for (std::int64_t epoch = 0; epoch < 60'000; ++epoch) ++seen[sampler.order(epoch, 4)];
  const auto expect = [&seen](const Indices& drawn, double chance) {
    CHECK(std::abs(seen[drawn] - 6e4 * chance) < 5 * std::sqrt(6e4 * chance));
  };
  expect({0, 1}, 1.0 / 6 * 2 / 5);
  expect({0, 3}, 1.0 / 6 * 3 / 5);
  expect({1, 0}, 2.0 / 6 * 1 / 4);
  expect({1, 3}, 2.0 / 6 * 3 / 4);
  expect({3, 0}, 3.0 / 6 * 1 / 3);
  expect({3, 1}, 3.0 / 6 * 2 / 3);
  CHECK(seen.size() == 6);
}

TEST_CASE("without replacement and as many draws as weights every sample comes once") {
  const auto size = std::int64_t{GENERATE(1, 2, 7, 64, 1'000)};
  std::vector<double> weights;
  for (std::int64_t i = 0; i < size; ++i) weights.push_back(std::pow(2.0, -double(i % 50)));
  const WeightedSampler sampler(weights, {.replacement = false});
  Indices order = sampler.order(0, size);
  CHECK((size < 7 || order != sampler.order(1, size)));
  std::ranges::sort(order);
  CHECK(order == SequentialSampler{}.order(0, size));
}

TEST_CASE("a weighted order depends on seed and epoch only, and is part of the contract") {
  const WeightedSampler with({1, 2, 3, 4}, {.draws = 8, .seed = 42});
  const WeightedSampler without({1, 2, 3, 4}, {.replacement = false, .seed = 42});
  CHECK(with.order(5, 4) == WeightedSampler({1, 2, 3, 4}, {.draws = 8, .seed = 42}).order(5, 4));
  CHECK(with.order(5, 4) != with.order(6, 4));
  CHECK(with.order(5, 4) != WeightedSampler({1, 2, 3, 4}, {.draws = 8, .seed = 43}).order(5, 4));
  CHECK(with.order(0, 4) == WeightedSampler({0.25, 0.5, 0.75, 1}, {.draws = 8, .seed = 42}).order(0, 4));
  CHECK(with.order(0, 4) == Indices{3, 0, 1, 2, 0, 2, 3, 3});
  CHECK(without.order(0, 4) == Indices{3, 1, 2, 0});
}

TEST_CASE("extreme weights neither overflow nor lose their chance") {
  const double huge = std::numeric_limits<double>::max(), tiny = std::numeric_limits<double>::denorm_min();
  const WeightedSampler large({huge, huge, huge}, {.draws = 3'000, .seed = 1});
  for (const auto& [index, times] : frequencies(large, 3, 1)) CHECK(std::abs(times - 1'000) < 150);
  const WeightedSampler small({tiny, 3 * tiny}, {.draws = 4'000, .seed = 1});
  CHECK(std::abs(frequencies(small, 2, 1)[0] - 1'000) < 150);
  const WeightedSampler mixed({huge, tiny}, {.replacement = false});
  CHECK(std::ranges::is_permutation(mixed.order(0, 2), Indices{0, 1}));
}

TEST_CASE("weights that cannot be meant are refused with their place and value") {
  CHECK_THROWS_WITH(WeightedSampler({}), "WeightedSampler: there is no weight");
  CHECK_THROWS_WITH(WeightedSampler({1, -2}),
                    "WeightedSampler: weight 1 is -2; it must be finite and not negative");
  CHECK_THROWS_AS(WeightedSampler({std::nan("")}), UsageError);
  CHECK_THROWS_AS(WeightedSampler({1, INFINITY}), UsageError);
  CHECK_THROWS_WITH(WeightedSampler({0, 0}), "WeightedSampler: all 2 weights are 0");
  CHECK_THROWS_WITH(WeightedSampler({1}, {.draws = -1}),
                    "WeightedSampler: draws is -1; it must be 0 or more");
  CHECK_THROWS_WITH(WeightedSampler({1, 0, 2}, {.draws = 3, .replacement = false}),
                    "WeightedSampler: 3 draws without replacement from 2 samples of a weight above 0");
  CHECK_THROWS_WITH(WeightedSampler({1, 2}).order(0, 3),
                    "WeightedSampler: 2 weights for a dataset of 3 samples");
}
