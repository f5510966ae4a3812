// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/data/samplers/length_bucket_sampler.hpp>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

using namespace looptorch;
using Indices = std::vector<std::int64_t>;

static_assert(BatchSampler<LengthBucketSampler> && !Sampler<LengthBucketSampler>);

namespace {

/// Lengths like those of speech: between 50 and 3,000, most of them short.
Indices speech_lengths(std::int64_t count) {
  looptorch::SplitMix64 random(11);
  Indices lengths;
  for (std::int64_t i = 0; i < count; ++i) {
    const double uniform = double(random.below(1'000'000)) / 1e6;
    lengths.push_back(50 + std::int64_t(2950 * uniform * uniform));
  }
  return lengths;
}

std::int64_t longest_of(std::span<const std::int64_t> batch, const Indices& lengths) {
  std::int64_t longest = 0;
  for (const std::int64_t index : batch) longest = std::max(longest, lengths[std::size_t(index)]);
  return longest;
}

std::int64_t padded(std::span<const std::int64_t> batch, const Indices& lengths) {
  return std::ssize(batch) * longest_of(batch, lengths);
}

std::int64_t padded(const BatchPlan& plan, const Indices& lengths) {
  std::int64_t sum = 0;
  for (std::int64_t i = 0; i < plan.size(); ++i) sum += padded(plan.batch(i), lengths);
  return sum;
}

Indices sorted(Indices indices) {
  std::ranges::sort(indices);
  return indices;
}

std::set<std::set<std::int64_t>> compositions(const BatchPlan& plan) {
  std::set<std::set<std::int64_t>> all;
  for (std::int64_t i = 0; i < plan.size(); ++i) {
    const auto batch = plan.batch(i);
    all.emplace(batch.begin(), batch.end());
  }
  return all;
}

}  // namespace

TEST_CASE("each sample comes exactly once an epoch, within the budget and the batch size, padding included") {
  const auto count = std::int64_t{GENERATE(0, 1, 2, 17, 500, 3'000)};
  const auto options = GENERATE(LengthBucketOptions{.budget = 12'000}, LengthBucketOptions{.batch_size = 7},
                                LengthBucketOptions{.budget = 9'000, .batch_size = 5},
                                LengthBucketOptions{.budget = 12'000, .batches_per_bucket = 1},
                                LengthBucketOptions{.budget = 12'000, .longest_first = true},
                                LengthBucketOptions{.budget = 4'000'000'000'000},
                                LengthBucketOptions{.batch_size = 5, .batches_per_bucket = INT64_MAX});
  const Indices lengths = speech_lengths(count);
  const LengthBucketSampler sampler(lengths, options);
  for (const std::int64_t epoch : {0, 1, 2}) {
    const BatchPlan plan = sampler.batches(epoch, count);
    CHECK(plan.size() == sampler.batch_count(count));
    CHECK(sorted(plan.indices) == SequentialSampler{}.order(0, count));
    for (std::int64_t i = 0; i < plan.size(); ++i) {
      REQUIRE(!plan.batch(i).empty());
      if (options.budget) REQUIRE(padded(plan.batch(i), lengths) <= options.budget);
      if (options.batch_size) REQUIRE(std::ssize(plan.batch(i)) <= options.batch_size);
    }
  }
}

TEST_CASE("padding nearly disappears, and batches use their budget") {
  const Indices lengths = speech_lengths(4'000);
  const auto total = std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
  const BatchPlan plan = LengthBucketSampler(lengths, {.budget = 24'000}).batches(0, 4'000);
  CHECK(double(padded(plan, lengths)) / double(total) < 1.07);
  CHECK(double(total) / double(plan.size() * 24'000) > 0.89);  // of the budget is used

  BatchPlan random;  // of the same mean size
  const Indices order = RandomSampler{}.order(0, 4'000);
  const std::size_t size = 4'000 / std::size_t(plan.size());
  for (std::size_t i = 0; i + size <= order.size(); i += size) random.add(std::span(order).subspan(i, size));
  CHECK(double(padded(random, lengths)) / double(total) > 1.9);
}

TEST_CASE("composition and order of the batches are drawn from (seed, epoch) alone") {
  const Indices lengths = speech_lengths(1'000);
  const LengthBucketSampler sampler(lengths, {.budget = 12'000, .seed = 4});
  const BatchPlan plan = sampler.batches(3, 1'000);
  const BatchPlan again = LengthBucketSampler(lengths, {.budget = 12'000, .seed = 4}).batches(3, 1'000);
  CHECK((plan.indices == again.indices && plan.ends == again.ends));
  CHECK(compositions(plan) != compositions(sampler.batches(4, 1'000)));
  const LengthBucketSampler other(lengths, {.budget = 12'000, .seed = 5});
  CHECK(compositions(plan) != compositions(other.batches(3, 1'000)));
  Indices longest;
  for (std::int64_t i = 0; i < plan.size(); ++i) longest.push_back(longest_of(plan.batch(i), lengths));
  CHECK(!std::ranges::is_sorted(longest));
  CHECK(!std::ranges::is_sorted(longest, std::greater{}));

  const LengthBucketSampler small({10, 11, 12, 13, 14, 15},
                                  {.batch_size = 2, .batches_per_bucket = 2, .seed = 42});
  CHECK(small.batches(0, 6).indices == Indices{0, 1, 5, 4, 3, 2});  // part of the contract
}

TEST_CASE("a bucket takes further batches that begin with 3/4 of its longest, and the first one whole") {
  const Indices lengths{100, 20, 19, 75, 74, 18, 10, 9};
  const LengthBucketSampler sampler(lengths, {.batch_size = 2});
  for (std::int64_t epoch = 0; epoch < 20; ++epoch) {
    const BatchPlan plan = sampler.batches(epoch, 8);
    std::vector<Indices> sorted_batches;
    for (std::int64_t i = 0; i < plan.size(); ++i) {
      const auto batch = plan.batch(i);
      sorted_batches.push_back(sorted(Indices(batch.begin(), batch.end())));
    }
    // 100 75 | 74 20 | 19 18 | 10 9, longest first: the second pair begins with less than 75, and so on.
    std::ranges::sort(sorted_batches);
    CHECK(sorted_batches == std::vector<Indices>{{0, 3}, {1, 4}, {2, 5}, {6, 7}});
  }
  const LengthBucketSampler wider({100, 20, 75, 90}, {.batch_size = 2});
  bool mixes = false;  // 100 90 | 75 20 are one bucket: 75 is enough, though 20 comes with it
  for (std::int64_t epoch = 0; epoch < 20; ++epoch) {
    const BatchPlan plan = wider.batches(epoch, 4);
    for (std::int64_t i = 0; i < plan.size(); ++i) {
      const auto batch = plan.batch(i);
      mixes |= sorted(Indices(batch.begin(), batch.end())) == Indices{0, 1};
    }
  }
  CHECK(mixes);
}

TEST_CASE("with one batch a bucket only the order of the batches changes") {
  const Indices lengths = SequentialSampler{}.order(0, 300);  // no ties
  const LengthBucketSampler sampler(lengths, {.budget = 3'000, .batches_per_bucket = 1});
  const BatchPlan first = sampler.batches(0, 300), second = sampler.batches(1, 300);
  CHECK(compositions(first) == compositions(second));
  CHECK(first.indices != second.indices);
}

TEST_CASE("longest first: the first batch is the largest that any epoch has") {
  const std::int64_t count = GENERATE(5, 40, 1'000);
  const Indices lengths = speech_lengths(count);
  const auto longest = std::ranges::max(lengths);
  const LengthBucketSampler sampler(lengths, {.budget = 12'000, .longest_first = true});
  for (std::int64_t epoch = 0; epoch < 20; ++epoch) {
    const BatchPlan plan = sampler.batches(epoch, count);
    CHECK(longest_of(plan.batch(0), lengths) == longest);
    CHECK(std::ssize(plan.batch(0)) == std::min<std::int64_t>(12'000 / longest, count));
  }
  const LengthBucketSampler by_chance(lengths, {.budget = 12'000});
  int first = 0;
  for (std::int64_t epoch = 0; epoch < 20; ++epoch)
    first += longest_of(by_chance.batches(epoch, count).batch(0), lengths) == longest;
  if (count > 5) CHECK(first < 20);
}

TEST_CASE("shortest first: so many epochs go from the shortest batch to the longest, the others do not") {
  const Indices lengths = speech_lengths(3'000);
  const LengthBucketSampler sampler(lengths, {.batch_size = 16, .shortest_first_epochs = 2});
  const LengthBucketSampler shuffled(lengths, {.batch_size = 16});
  const auto rising = [&](std::int64_t epoch) {
    const BatchPlan plan = sampler.batches(epoch, 3'000);
    Indices longest;
    for (std::int64_t i = 0; i < plan.size(); ++i) longest.push_back(longest_of(plan.batch(i), lengths));
    // Within a bucket batches are drawn from similar lengths; from one to the next lengths only rise.
    for (std::size_t i = 8; i < longest.size(); ++i)
      if (longest[i] < longest[i - 8]) return false;
    return true;
  };
  CHECK(rising(0));
  CHECK(rising(1));
  CHECK_FALSE(rising(2));
  for (const std::int64_t epoch : {0, 1, 2}) {
    const BatchPlan plan = sampler.batches(epoch, 3'000), other = shuffled.batches(epoch, 3'000);
    CHECK(compositions(plan) == compositions(other));
    CHECK((plan.indices == other.indices) == (epoch >= 2));
    CHECK(plan.size() == sampler.batch_count(3'000));
  }
  CHECK(sampler.identity() != shuffled.identity());
}

TEST_CASE("a sample longer than the budget is an error that names it, or a batch of its own") {
  try {
    LengthBucketSampler({5, 101, 7}, {.budget = 100});
    FAIL("no exception");
  } catch (const SampleTooLong& error) {
    CHECK((error.index == 1 && error.length == 101));
    CHECK(
        std::string(error.what()) ==
        "LengthBucketSampler: sample 1 has length 101, more than the budget of 100; leave it out, raise the "
        "budget, or say too_long = TooLong::alone");
  }
  const LengthBucketSampler sampler({5, 101, 7, 300, 100},
                                    {.budget = 100, .longest_first = true, .too_long = TooLong::alone});
  const BatchPlan plan = sampler.batches(0, 5);
  CHECK(Indices(plan.batch(0).begin(), plan.batch(0).end()) == Indices{3});
  CHECK(compositions(plan) == std::set<std::set<std::int64_t>>{{3}, {1}, {4}, {0, 2}});
}

TEST_CASE("lengths of zero share a batch, and options out of range are refused") {
  CHECK(LengthBucketSampler({0, 0, 0}, {.budget = 1}).batch_count(3) == 1);
  CHECK_THROWS_WITH(LengthBucketSampler({1}, {}),
                    "LengthBucketSampler: give a budget, a batch_size, or both");
  CHECK_THROWS_WITH(LengthBucketSampler({1}, {.budget = -1}),
                    "LengthBucketSampler: budget is -1; it must be 0 (none) or more");
  CHECK_THROWS_WITH(LengthBucketSampler({1}, {.batch_size = -1}),
                    "LengthBucketSampler: batch_size is -1; it must be 0 (any) or more");
  CHECK_THROWS_WITH(LengthBucketSampler({1}, {.budget = 1, .batches_per_bucket = 0}),
                    "LengthBucketSampler: batches_per_bucket is 0; it must be at least 1");
  CHECK_THROWS_WITH(LengthBucketSampler({1}, {.budget = 1, .shortest_first_epochs = -1}),
                    "LengthBucketSampler: shortest_first_epochs is -1; it must be 0 or more");
  CHECK_THROWS_WITH(
      LengthBucketSampler({1}, {.budget = 1, .longest_first = true, .shortest_first_epochs = 1}),
      "LengthBucketSampler: longest_first and shortest_first_epochs exclude each other");
  CHECK_THROWS_WITH(LengthBucketSampler({1, -4}, {.budget = 1}),
                    "LengthBucketSampler: the length of sample 1 is -4");
  CHECK_THROWS_WITH(LengthBucketSampler({1, 4}, {.budget = 4}).batches(0, 3),
                    "LengthBucketSampler: 2 lengths for a dataset of 3 samples");
}
