// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/data/samplers/sampler.hpp>

#include <algorithm>
#include <map>

using namespace looptorch;
using Indices = std::vector<std::int64_t>;

static_assert(Sampler<SequentialSampler> && Sampler<RandomSampler>);
static_assert(!Sampler<int>);

TEST_CASE("the sequential sampler visits every sample in order") {
  CHECK(SequentialSampler{}.order(0, 4) == Indices{0, 1, 2, 3});
  CHECK(SequentialSampler{}.order(9, 0).empty());
}

TEST_CASE("the random sampler visits every sample once, differently in each epoch and for each seed") {
  const RandomSampler sampler{.seed = 42};
  Indices order = sampler.order(0, 1'000);
  CHECK(order == RandomSampler{.seed = 42}.order(0, 1'000));
  CHECK(order != sampler.order(1, 1'000));
  CHECK(order != RandomSampler{.seed = 43}.order(0, 1'000));
  std::ranges::sort(order);
  CHECK(order == SequentialSampler{}.order(0, 1'000));
  CHECK(sampler.order(3, 0).empty());
  CHECK(sampler.order(3, 1) == Indices{0});
}

TEST_CASE("a seed's order is part of the contract: it may not change between releases or platforms") {
  CHECK(RandomSampler{.seed = 42}.order(0, 10) == Indices{4, 7, 2, 9, 0, 6, 8, 5, 3, 1});
  CHECK(RandomSampler{.seed = 42}.order(1, 10) == Indices{9, 1, 7, 8, 2, 5, 3, 6, 0, 4});
}

TEST_CASE("all permutations of four are equally likely") {
  std::map<Indices, int> seen;
  for (std::int64_t epoch = 0; epoch < 24'000; ++epoch) ++seen[RandomSampler{.seed = 7}.order(epoch, 4)];
  CHECK(seen.size() == 24);
  for (const auto& [order, times] : seen) CHECK(std::abs(times - 1'000) < 160);  // 5 standard deviations
}
