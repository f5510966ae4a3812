// SPDX-License-Identifier: MIT
// What the loader does with samplers that decide batches, and with datasets that draw.
// Tests data/loader: pinned_prefetch_loader
#include "support/precompiled.hpp"

#include <looptorch/data/datasets/map_dataset.hpp>
#include <looptorch/data/loader/pinned_prefetch_loader.hpp>
#include <looptorch/data/samplers/distributed_sampler.hpp>
#include <looptorch/data/samplers/length_bucket_sampler.hpp>
#include <looptorch/data/samplers/weighted_sampler.hpp>

#include "support/watchdog.hpp"
#include "unit/data/values.hpp"

#include <algorithm>
#include <limits>

using namespace looptorch;
using testing::Watchdog;
using namespace values;

namespace {

struct Numbers {
  std::int64_t count = 50;
  std::int64_t size() const { return count; }
  std::int64_t get(std::int64_t index) const { return index; }
};

template <class Loader>
Batches epoch_of(Loader& loader) {
  Batches batches;
  for (auto batch = loader.begin(); batch != loader.end(); ++batch) {
    CHECK(std::ranges::equal(batch.indices(), *batch));
    batches.push_back(*batch);
  }
  return batches;
}

Batches batches_of(const BatchPlan& plan) {
  Batches batches;
  for (std::int64_t i = 0; i < plan.size(); ++i)
    batches.emplace_back(plan.batch(i).begin(), plan.batch(i).end());
  return batches;
}

}  // namespace

TEST_CASE("a loader takes the batches that a sampler decides, and resumes at any of them") {
  const Watchdog watchdog("batch sampler");
  const Values lengths = RandomSampler{.seed = 9}.order(0, 50);
  const LengthBucketSampler sampler(lengths, {.budget = 100, .longest_first = true, .seed = 2});
  const std::int64_t workers = GENERATE(0, 1, 3);
  PinnedPrefetchLoader loader(Numbers{}, {.workers = workers}, sampler, kKeep);
  CHECK(loader.size() == sampler.batch_count(50));
  for (const std::int64_t epoch : {0, 1, 2})
    CHECK(epoch_of(loader) == batches_of(sampler.batches(epoch, 50)));
  const auto whole = batches_of(sampler.batches(4, 50));
  for (std::int64_t cursor = 0; cursor <= loader.size(); ++cursor) {
    loader.begin_epoch(4);
    loader.skip(cursor);
    CHECK(epoch_of(loader) == std::vector(whole.begin() + cursor, whole.end()));
  }
}

TEST_CASE("weighted and distributed orders resume at any cursor too") {
  const WeightedSampler weighted(std::vector<double>(50, 1.0), {.draws = 23, .seed = 2});
  const DistributedSampler sampler({.rank = 1, .world_size = 2, .uneven = Uneven::repeat}, weighted);
  PinnedPrefetchLoader loader(Numbers{}, {.batch_size = 4, .workers = 2}, sampler, kKeep);
  CHECK(loader.size() == 3);
  loader.begin_epoch(3);
  const auto whole = epoch_of(loader);
  CHECK((whole.size() == 3 && whole[2].size() == 4));
  for (std::int64_t cursor = 0; cursor <= 3; ++cursor) {
    loader.begin_epoch(3);
    loader.skip(cursor);
    CHECK(epoch_of(loader) == std::vector(whole.begin() + cursor, whole.end()));
  }
}

TEST_CASE("the largest numbers mean all: one batch, every batch ahead, a bucket of everything") {
  const Watchdog watchdog("largest numbers");
  constexpr std::int64_t kAll = std::numeric_limits<std::int64_t>::max();
  const std::int64_t workers = GENERATE(0, 2);
  for (const std::int64_t batch_size : {kAll, kAll - 1, kAll / 2 + 1, kAll / 50 + 1}) {
    PinnedPrefetchLoader loader(Numbers{}, {.batch_size = batch_size, .workers = workers, .prefetch = kAll},
                                SequentialSampler{}, kKeep);
    CHECK(loader.size() == 1);
    CHECK(epoch_of(loader) == Batches{SequentialSampler{}.order(0, 50)});
    PinnedPrefetchLoader whole_only(Numbers{}, {.batch_size = batch_size, .drop_last = true},
                                    SequentialSampler{}, kKeep);
    CHECK((whole_only.size() == 0 && epoch_of(whole_only).empty()));
  }
  PinnedPrefetchLoader none(Numbers{0}, {.batch_size = kAll}, SequentialSampler{}, kKeep);
  CHECK((none.size() == 0 && epoch_of(none).empty()));
  const LengthBucketSampler buckets(Values(50, kAll), {.budget = kAll, .batches_per_bucket = kAll});
  CHECK(buckets.batch_count(50) == 50);
  CHECK(LengthBucketSampler(Values(50, 1), {.budget = kAll, .batch_size = kAll}).batch_count(50) == 1);
}

TEST_CASE("options that the sampler decides are refused beside it") {
  const LengthBucketSampler sampler(Values(50, 1), {.batch_size = 5});
  CHECK_THROWS_WITH(
      PinnedPrefetchLoader(Numbers{}, {.batch_size = 2}, sampler, kKeep),
      "PinnedPrefetchLoader: batch_size and drop_last are the sampler's to decide; leave them as "
      "they are");
  CHECK_THROWS_AS(PinnedPrefetchLoader(Numbers{}, {.drop_last = true}, sampler, kKeep), UsageError);
}

TEST_CASE("a sampler that breaks its word about batches is refused") {
  struct Broken {
    BatchPlan plan;
    std::int64_t announced = 1;
    BatchPlan batches(std::int64_t, std::int64_t) const { return plan; }
    std::int64_t batch_count(std::int64_t) const { return announced; }
  };
  const auto error_of = [](Broken sampler) {
    PinnedPrefetchLoader loader(Numbers{}, {}, std::move(sampler), kKeep);
    try {
      loader.begin();
    } catch (const UsageError& error) {
      return std::string(error.what());
    }
    return std::string("none");
  };
  CHECK(error_of({{.indices = {1, 2}, .ends = {2}}}) == "none");
  CHECK(error_of({{.indices = {1, 2}, .ends = {1, 2}}}) ==
        "PinnedPrefetchLoader: the sampler gave 2 batches, announced were 1");
  CHECK(error_of({{.indices = {1, 2}, .ends = {0, 2}}, 2}) ==
        "PinnedPrefetchLoader: the sampler gave an empty batch");
  CHECK(error_of({{.indices = {1, 2}, .ends = {1}}}) ==
        "PinnedPrefetchLoader: the sampler's batches end at 1 of 2 indices");
  CHECK(error_of({{.indices = {1, 2}, .ends = {3}}}) ==
        "PinnedPrefetchLoader: the sampler's batches end at 3 of 2 indices");
  CHECK(error_of({{.indices = {1, 50}, .ends = {2}}}) ==
        "PinnedPrefetchLoader: the sampler gave index 50 for a dataset of 50 samples");
}

TEST_CASE(
    "what samples draw depends on the seed, the epoch and the index, whatever the workers and the order") {
  const Watchdog watchdog("seeded samples");
  const MapDataset drawn(Numbers{}, [](std::int64_t index, const SampleContext& context) {
    return std::pair(index, context.seed);
  });
  const auto draws = [&](std::uint64_t seed, std::int64_t workers, std::int64_t batch, auto sampler) {
    PinnedPrefetchLoader loader(drawn, {.batch_size = batch, .workers = workers, .seed = seed}, sampler,
                                [](std::span<std::pair<std::int64_t, std::uint64_t>> samples) {
                                  return std::vector(samples.begin(), samples.end());
                                });
    std::vector<std::pair<std::int64_t, std::uint64_t>> all;
    loader.begin_epoch(6);
    for (const auto& samples : loader) all.insert(all.end(), samples.begin(), samples.end());
    std::ranges::sort(all);
    return all;
  };
  const auto expected = draws(3, 0, 1, SequentialSampler{});
  for (const auto& [index, seed] : expected) CHECK(seed == sample_context(3, 6, index).seed);
  CHECK(draws(3, 3, 7, RandomSampler{.seed = 5}) == expected);
  CHECK(draws(4, 3, 7, RandomSampler{.seed = 5}) != expected);
}
