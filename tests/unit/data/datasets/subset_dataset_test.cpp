// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/data/datasets/dataset.hpp>
#include <looptorch/data/datasets/subset_dataset.hpp>

#include "unit/data/words.hpp"

#include <memory>
#include <string>
#include <vector>

using namespace looptorch;
using namespace words;

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
