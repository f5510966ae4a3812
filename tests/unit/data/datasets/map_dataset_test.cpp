// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/data/datasets/dataset.hpp>
#include <looptorch/data/datasets/map_dataset.hpp>

#include "unit/data/words.hpp"

#include <memory>
#include <string>
#include <vector>

using namespace looptorch;
using namespace words;

TEST_CASE("a map changes samples, and keeps the collate while their type stays") {
  const Words words{"w", 2};
  const MapDataset louder(words, [](std::string text) { return text + "!"; });
  static_assert(!SeededDataset<decltype(louder)> && CollatingDataset<decltype(louder)>);
  static_assert(!IdentifiedDataset<decltype(louder)>);  // nothing knows what the function does
  CHECK(all(louder) == Texts{"w 0!", "w 1!"});
  Texts samples{"x"};
  CHECK(louder.collate(samples) == 1);
  const MapDataset lengths(words, &std::string::size);
  static_assert(!CollatingDataset<decltype(lengths)>);
  CHECK(lengths.get(1) == 3);
}

TEST_CASE("a map may draw; maps and datasets below it draw something else") {
  const auto draw = [](const std::string& text, const SampleContext& context) {
    return text + "/" + std::to_string(context.seed % 1000) + "/" + std::to_string(context.epoch);
  };
  const MapDataset once(Words{"w", 1}, draw);
  static_assert(SeededDataset<decltype(once)>);
  CHECK(get_sample(once, 0, {.seed = 5, .epoch = 9}) == "w 0/5/9");
  const MapDataset twice(once, draw);
  const auto below = looptorch::detail::context_below({.seed = 5, .epoch = 9});
  CHECK(below.seed != 5);
  CHECK(get_sample(twice, 0, {.seed = 5, .epoch = 9}) ==
        "w 0/" + std::to_string(below.seed % 1000) + "/9/5/9");
  const MapDataset plain(Seeded{}, [](std::string text) { return text; });
  CHECK(get_sample(plain, 0, {.seed = 5}) == "0 drew 5");
}
