// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/data/concat_dataset.hpp>
#include <looptorch/data/dataset.hpp>

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

TEST_CASE("datasets of one sample type are one, empty ones among them") {
  const Words first{"a", 2}, none{"-", 0};
  const ConcatDataset both(none, first, none, Words{"b", 1}, none);
  static_assert(
      std::is_same_v<decltype(both),
                     const ConcatDataset<const Words&, const Words&, const Words&, Words, const Words&>>);
  static_assert(Dataset<decltype(both)> && !SeededDataset<decltype(both)> &&
                CollatingDataset<decltype(both)>);
  CHECK(both.size() == 3);
  CHECK(all(both) == Texts{"a 0", "a 1", "b 0"});
  CHECK(both.identity(2) == "file of b 0");
  Texts samples{"x", "y"};
  CHECK(both.collate(samples) == 2);
}

TEST_CASE("a vector of datasets concatenates too") {
  std::vector<Words> sets{{"a", 1}, {"b", 0}, {"c", 2}};
  const ConcatDataset together(std::move(sets));
  CHECK(all(together) == Texts{"a 0", "c 0", "c 1"});
  CHECK(together.identity(1) == "file of c 0");
  CHECK_THROWS_WITH(ConcatDataset(std::vector<Words>{}), "ConcatDataset: there is no dataset");
  const ConcatDataset copy(together);
  static_assert(std::is_same_v<decltype(copy), decltype(together)>);
}

TEST_CASE("where one dataset draws, all take the context, by the index among all") {
  const ConcatDataset mixed(Words{"a", 1}, Seeded{});
  static_assert(SeededDataset<decltype(mixed)> && !IdentifiedDataset<decltype(mixed)>);
  CHECK(all(mixed, {.seed = 7}) == Texts{"a 0", "0 drew 7", "1 drew 7"});
}
