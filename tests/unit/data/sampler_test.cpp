// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/data/sampler.hpp>

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

TEST_CASE("SplitMix64 gives its published numbers") {
  looptorch::detail::SplitMix64 random(1234567);  // Rosetta Code's check values
  for (const std::uint64_t expected : {6457827717110365317U, 3203168211198807973U, 9817491932198370423U})
    CHECK(random.next() == expected);
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

TEST_CASE("bounded numbers are unbiased for a bound that does not divide 2^64") {
  const std::uint64_t bound = std::uint64_t{3}
                              << 61;  // 1.5 * 2^62 ... a plain modulus would favour the lower half by a half
  looptorch::detail::SplitMix64 random(1);
  int low = 0;
  for (int i = 0; i < 10'000; ++i) {
    const std::uint64_t value = random.below(bound);
    REQUIRE(value < bound);
    low += value < bound / 2;
  }
  CHECK(std::abs(low - 5'000) < 250);
}
