// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/data/dataset.hpp>
#include <looptorch/data/subset_dataset.hpp>

#include <memory>
#include <string>
#include <vector>

using namespace looptorch;

namespace {

/// Sample i is "NAME i"; collates to the number of samples.
struct Words {
  std::string name;
  std::int64_t count = 3;
  std::int64_t size() const { return count; }
  std::string get(std::int64_t index) const { return name + " " + std::to_string(index); }
  std::size_t collate(std::span<std::string> samples) const { return samples.size(); }
  std::string identity(std::int64_t index) const { return "file of " + get(index); }
};

/// Owns what cannot be copied, and draws.
struct Seeded {
  std::unique_ptr<int> owned = std::make_unique<int>(1);
  std::int64_t size() const { return 2; }
  std::string get(std::int64_t index, const SampleContext& context) const {
    return std::to_string(index) + " drew " + std::to_string(context.seed);
  }
};

template <class Set>
std::vector<std::string> all(const Set& set, const SampleContext& context = {}) {
  std::vector<std::string> samples;
  for (std::int64_t i = 0; i < set.size(); ++i) samples.push_back(get_sample(set, i, context));
  return samples;
}

using Texts = std::vector<std::string>;

}  // namespace

TEST_CASE("a subset visits what it names, in its order") {
  const Words words{"w", 5};
  const SubsetDataset subset(words, {4, 0, 4});
  static_assert(std::is_same_v<decltype(subset), const SubsetDataset<const Words&>>);
  CHECK(all(subset) == Texts{"w 4", "w 0", "w 4"});
  CHECK(subset.identity(0) == "file of w 4");
  Texts samples{"x"};
  CHECK(subset.collate(samples) == 1);
  CHECK(SubsetDataset(words, {}).size() == 0);
  CHECK_THROWS_WITH(SubsetDataset(words, {5}), "SubsetDataset: index 5 of a dataset of 5 samples");
  CHECK_THROWS_AS(SubsetDataset(words, {-1}), UsageError);
  const SubsetDataset seeded(Seeded{}, {1});
  static_assert(SeededDataset<decltype(seeded)> && !CollatingDataset<decltype(seeded)>);
  CHECK(all(seeded, {.seed = 3}) == Texts{"1 drew 3"});
}
