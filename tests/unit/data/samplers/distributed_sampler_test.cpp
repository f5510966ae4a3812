// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/data/samplers/distributed_sampler.hpp>
#include <looptorch/data/samplers/length_bucket_sampler.hpp>
#include <looptorch/data/samplers/weighted_sampler.hpp>

#include <algorithm>
#include <limits>

using namespace looptorch;
using Indices = std::vector<std::int64_t>;

static_assert(Sampler<DistributedSampler<>> && !BatchSampler<DistributedSampler<>>);
static_assert(BatchSampler<DistributedSampler<LengthBucketSampler>> &&
              !Sampler<DistributedSampler<LengthBucketSampler>>);

TEST_CASE("ranks divide an epoch: by default every sample goes to one rank, whatever does not divide") {
  const auto [size, world] = GENERATE(
      table<std::int64_t, std::int64_t>({{12, 1}, {12, 4}, {10, 4}, {15, 4}, {2, 5}, {1, 3}, {0, 3}}));
  const RandomSampler inner{.seed = 8};
  const Indices all = inner.order(3, size);
  Indices dealt(all.size(), -1);
  for (std::int64_t rank = 0; rank < world; ++rank) {
    const DistributedSampler sampler({.rank = rank, .world_size = world}, inner);
    const Indices mine = sampler.order(3, size);
    CHECK(std::ssize(mine) == size / world + (rank < size % world));
    CHECK(sampler.count(size) == std::ssize(mine));
    for (std::size_t i = 0; i < mine.size(); ++i) dealt[i * std::size_t(world) + std::size_t(rank)] = mine[i];
  }
  CHECK(dealt == all);
}

TEST_CASE("ranks share an epoch evenly: all samples, the first ones again where they do not divide") {
  const auto [size, world] = GENERATE(
      table<std::int64_t, std::int64_t>({{12, 1}, {12, 4}, {13, 4}, {15, 4}, {2, 5}, {1, 3}, {0, 3}}));
  const RandomSampler inner{.seed = 8};
  const Indices all = inner.order(3, size);
  Indices dealt(std::size_t((size + world - 1) / world * world));
  for (std::int64_t rank = 0; rank < world; ++rank) {
    const DistributedSampler sampler({.rank = rank, .world_size = world, .uneven = Uneven::repeat}, inner);
    const Indices mine = sampler.order(3, size);
    CHECK(std::ssize(mine) == (size + world - 1) / world);
    CHECK(sampler.count(size) == std::ssize(mine));
    for (std::size_t i = 0; i < mine.size(); ++i) dealt[i * std::size_t(world) + std::size_t(rank)] = mine[i];
  }
  for (std::size_t i = 0; i < dealt.size(); ++i) CHECK(dealt[i] == all[i % all.size()]);
}

TEST_CASE("dropping skips the last ones, and shares are disjoint") {
  const auto [size, world] =
      GENERATE(table<std::int64_t, std::int64_t>({{12, 4}, {13, 4}, {15, 4}, {2, 5}, {0, 3}}));
  Indices dealt;
  for (std::int64_t rank = 0; rank < world; ++rank) {
    const DistributedSampler sampler({.rank = rank, .world_size = world, .uneven = Uneven::drop});
    const Indices mine = sampler.order(1, size);
    CHECK(std::ssize(mine) == size / world);
    CHECK(sampler.count(size) == size / world);
    dealt.insert(dealt.end(), mine.begin(), mine.end());
  }
  Indices expected = RandomSampler{}.order(1, size);
  expected.resize(std::size_t(size / world * world));
  CHECK(std::ranges::is_permutation(dealt, expected));
}

TEST_CASE("what is shared follows the inner sampler: its count, its draws, its epochs") {
  const WeightedSampler inner({1, 1, 1, 1}, {.draws = 10, .seed = 2});
  const DistributedSampler sampler({.rank = 1, .world_size = 2}, inner);
  CHECK(sampler.count(4) == 5);
  const Indices all = inner.order(6, 4);
  CHECK(sampler.order(6, 4) == Indices{all[1], all[3], all[5], all[7], all[9]});
}

TEST_CASE("a sampler that decides batches has whole ones sharded") {
  const Indices lengths = RandomSampler{}.order(0, 100);
  const LengthBucketSampler inner(lengths, {.budget = 400, .seed = 1});
  const BatchPlan all = inner.batches(2, 100);
  for (const Uneven uneven : {Uneven::repeat, Uneven::drop})
    for (std::int64_t rank = 0; rank < 3; ++rank) {
      const DistributedSampler sampler({.rank = rank, .world_size = 3, .uneven = uneven}, inner);
      const BatchPlan mine = sampler.batches(2, 100);
      CHECK(mine.size() == (uneven == Uneven::drop ? all.size() / 3 : (all.size() + 2) / 3));
      CHECK(sampler.batch_count(100) == mine.size());
      for (std::int64_t i = 0; i < mine.size(); ++i)
        CHECK(std::ranges::equal(mine.batch(i), all.batch((3 * i + rank) % all.size())));
    }
}

TEST_CASE("more ranks than samples repeat one or have none, however many ranks there are") {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  const SequentialSampler inner;
  CHECK(DistributedSampler({.rank = 0, .world_size = kMost}, inner).order(0, 3) == Indices{0});
  CHECK(DistributedSampler({.rank = kMost - 1, .world_size = kMost, .uneven = Uneven::repeat}, inner)
            .count(3) == 1);
  CHECK(DistributedSampler({.rank = kMost - 1, .world_size = kMost}, inner).count(3) == 0);
  CHECK(DistributedSampler({.world_size = kMost, .uneven = Uneven::drop}, inner).order(0, 3).empty());
  CHECK(DistributedSampler({.world_size = kMost}, inner).order(0, 0).empty());
}

TEST_CASE("a rank outside the world is refused") {
  CHECK_THROWS_WITH(DistributedSampler({.rank = 2, .world_size = 2}),
                    "DistributedSampler: rank 2 of world size 2");
  CHECK_THROWS_AS(DistributedSampler({.rank = -1}), UsageError);
  CHECK_THROWS_AS(DistributedSampler({.world_size = 0}), UsageError);
}

TEST_CASE("blocks: each rank takes its part of each window, and every sample comes once") {
  const auto [size, world, block] = GENERATE(table<std::int64_t, std::int64_t, std::int64_t>(
      {{24, 2, 4}, {27, 2, 4}, {27, 4, 2}, {27, 1, 8}, {33, 4, 2}, {3, 4, 2}, {13, 3, 1}, {0, 2, 2}}));
  const RandomSampler inner{.seed = 8};
  const Indices all = inner.order(3, size);
  Indices expected, dealt;
  for (std::int64_t rank = 0; rank < world; ++rank) {
    const DistributedSampler sampler(
        {.rank = rank, .world_size = world, .uneven = Uneven::keep, .block = block}, inner);
    const Indices mine = sampler.order(3, size);
    CHECK(sampler.count(size) == std::ssize(mine));
    dealt.insert(dealt.end(), mine.begin(), mine.end());
    for (std::int64_t i = 0; i < size; ++i)
      if (i / block % world == rank) expected.push_back(all[std::size_t(i)]);
    CHECK(sampler.identity() ==
          message("DistributedSampler, blocks of ", world * block, " of RandomSampler, seed 8"));
  }
  CHECK(dealt == expected);
}

TEST_CASE("blocks that cannot be are refused") {
  CHECK_THROWS_WITH(DistributedSampler({.uneven = Uneven::keep, .block = 0}), Catch::Contains("block of 0"));
  CHECK_THROWS_WITH(DistributedSampler({.world_size = 2, .uneven = Uneven::drop, .block = 3}),
                    Catch::Contains("Uneven::keep"));
  CHECK_THROWS_AS(
      DistributedSampler(
          {.world_size = 3, .uneven = Uneven::keep, .block = std::numeric_limits<std::int64_t>::max() / 2}),
      UsageError);
}
