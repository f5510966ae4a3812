// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/data/datasets/concat_dataset.hpp>
#include <looptorch/data/datasets/dataset.hpp>

#include "unit/data/words.hpp"

#include <memory>
#include <string>
#include <vector>

using namespace looptorch;
using namespace words;

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
