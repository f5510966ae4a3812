// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/data/datasets/dataset.hpp>

#include <set>
#include <string>
#include <type_traits>

using namespace looptorch;

namespace {

struct Plain {
  std::int64_t size() const { return 1; }
  int get(std::int64_t) const { return 1; }
};
struct Drawing {
  std::int64_t size() const { return 1; }
  std::uint64_t get(std::int64_t, const SampleContext& context) const { return context.seed; }
};
struct Both : Plain {
  using Plain::get;
  int get(std::int64_t, SampleContext) const { return 2; }
};
struct Named : Plain {
  const char* identity(std::int64_t) const { return "x"; }
};

static_assert(Dataset<Plain> && !SeededDataset<Plain> && std::is_same_v<sample_t<Plain>, int>);
static_assert(Dataset<Drawing> && SeededDataset<Drawing> && std::is_same_v<sample_t<Drawing>, std::uint64_t>);
static_assert(IdentifiedDataset<Named> && !IdentifiedDataset<Plain>);
static_assert(!Dataset<int> && !Dataset<std::string>);

}  // namespace

TEST_CASE("a sample's seed depends on the run's seed, the epoch and the index, and is part of the contract") {
  std::set<std::uint64_t> seeds;
  for (std::uint64_t seed = 0; seed < 10; ++seed)
    for (std::int64_t epoch = 0; epoch < 10; ++epoch)
      for (std::int64_t index = 0; index < 100; ++index) {
        const SampleContext context = sample_context(seed, epoch, index);
        CHECK(context.epoch == epoch);
        seeds.insert(context.seed);
      }
  CHECK(seeds.size() == 10'000);
  CHECK(sample_context(1, 2, 3).seed == 12199143082664567687U);
}

TEST_CASE("a dataset that can draw is asked to") {
  CHECK(get_sample(Plain{}, 0, {}) == 1);
  CHECK(get_sample(Drawing{}, 0, {.seed = 9}) == 9);
  CHECK(get_sample(Both{}, 0, {}) == 2);
}
