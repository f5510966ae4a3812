// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/data/manifest/manifest_split.hpp>

#include <array>
#include <set>
#include <string>
#include <vector>

using namespace looptorch;

namespace {

std::vector<Utterance> numbered(int count) {
  std::vector<Utterance> utterances;
  for (int i = 0; i < count; ++i) utterances.push_back({"a.wav", std::to_string(i)});
  return utterances;
}

std::vector<std::string> texts(const std::vector<Utterance>& utterances) {
  std::vector<std::string> result;
  for (const auto& utterance : utterances) result.push_back(utterance.text);
  return result;
}

std::array<std::size_t, 3> sizes(int count, SplitShares shares = {}) {
  const auto split = split_utterances(numbered(count), 42, shares);
  return {split.train.size(), split.validation.size(), split.test.size()};
}

using Sizes = std::array<std::size_t, 3>;

}  // namespace

TEST_CASE("a split parts 80/10/10, each utterance into one part") {
  const auto split = split_utterances(numbered(200));
  CHECK((Sizes{split.train.size(), split.validation.size(), split.test.size()} == Sizes{160, 20, 20}));
  std::set<std::string> all;
  for (const auto* part : {&split.train, &split.validation, &split.test})
    for (const auto& utterance : *part) all.insert(utterance.text);
  CHECK(all.size() == 200);
  CHECK(texts(split.train) != texts(numbered(160)));
}

TEST_CASE("a split depends on the seed and the order alone") {
  const auto once = split_utterances(numbered(50)), again = split_utterances(numbered(50), 42);
  CHECK((once.train == again.train));
  CHECK((once.test == again.test));
  CHECK_FALSE((once.test == split_utterances(numbered(50), 43).test));
  // Fixed for ever: who trains again on the same files must not learn from yesterday's test.
  CHECK((texts(split_utterances(numbered(40)).test) == std::vector<std::string>{"22", "9", "27", "1"}));
}

TEST_CASE("a split of few utterances fills the test's part first") {
  CHECK((sizes(0) == Sizes{0, 0, 0}));
  CHECK((sizes(1) == Sizes{0, 0, 1}));
  CHECK((sizes(9) == Sizes{7, 1, 1}));
  CHECK((sizes(10) == Sizes{8, 1, 1}));
  CHECK((sizes(11) == Sizes{8, 1, 2}));
  CHECK((sizes(70) == Sizes{56, 7, 7}));
}

TEST_CASE("a split's shares can be chosen") {
  CHECK((sizes(10, {.train = 1, .validation = 0}) == Sizes{10, 0, 0}));
  CHECK((sizes(10, {.train = 0.7, .validation = 0.3}) == Sizes{7, 3, 0}));
  CHECK_THROWS_WITH(
      sizes(10, {.train = 0.9, .validation = 0.2}),
      "split_utterances: the shares 0.9 and 0.2 must not be negative, nor more than 1 together");
  CHECK_THROWS_AS(sizes(10, {.train = -0.1, .validation = 0.2}), UsageError);
}
