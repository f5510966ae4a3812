// SPDX-License-Identifier: MIT
// Which batches need the most memory.
#include "support/precompiled.hpp"

#include <looptorch/preflight/hard_batches.hpp>

namespace lt = looptorch;
using Batches = std::vector<std::vector<std::int64_t>>;
using Catch::Matchers::Contains;

TEST_CASE("hard batches: the longest inputs, the longest targets, and the most of both") {
  // Speech: long silence with few words, and fast speech.
  const std::vector<lt::SampleLengths> lengths{{100, 5}, {3000, 4},  {900, 80},
                                               {200, 2}, {2500, 60}, {2900, 3}};
  CHECK(lt::hard_batches(lengths, 2) == Batches{{1, 5}, {2, 4}, {4, 2}});
  CHECK(lt::hard_batches(lengths, 1) == Batches{{1}, {2}, {4}});
  CHECK(lt::hard_batches(lengths, 100).size() == 3);
  CHECK(lt::hard_batches(lengths, 100)[0].size() == 6);
  const std::vector<lt::SampleLengths> alike(4, {10, 10});
  CHECK(lt::hard_batches(alike, 3) == Batches{{0, 1, 2}});  // one is enough
  CHECK(lt::hard_batches(40, 3) == Batches{{0, 1, 2}});
  CHECK(lt::hard_batches(2, 3) == Batches{{0, 1}});
  CHECK_THROWS_WITH(lt::hard_batches(0, 3), Contains("no lengths"));
}

TEST_CASE("hard batches: of those that a sampler forms, also the one with the most samples") {
  const std::vector<lt::SampleLengths> lengths{{3000, 4}, {900, 80}, {10, 1},  {11, 1},
                                               {12, 1},   {13, 1},   {1000, 9}};
  const Batches formed{{0}, {1}, {2, 3, 4, 5}, {6}};
  const auto hard = lt::hard_batches(lengths, formed);
  for (const auto& batch : Batches{{0}, {1}, {5, 4, 3, 2}})  // each longest first
    CHECK(std::find(hard.begin(), hard.end(), batch) != hard.end());
  CHECK(std::find(hard.begin(), hard.end(), formed[3]) == hard.end());
}

TEST_CASE("hard batches: the first samples of a batch are its hardest, by input and by target") {
  const std::vector<lt::SampleLengths> lengths{{10, 9}, {30, 1}, {20, 30}, {5, 5}};
  const auto hard = lt::hard_batches(lengths, Batches{{0, 1, 2}, {3}});
  CHECK(std::find(hard.begin(), hard.end(), std::vector<std::int64_t>{1, 2, 0}) != hard.end());
  CHECK(std::find(hard.begin(), hard.end(), std::vector<std::int64_t>{2, 0, 1}) != hard.end());
}

TEST_CASE("hard batches: errors name what is wrong") {
  CHECK_THROWS_WITH(lt::hard_batches({}, 2), Contains("no lengths"));
  const std::vector<lt::SampleLengths> lengths(3);
  CHECK_THROWS_WITH(lt::hard_batches(lengths, 0), Contains("got 0"));
  CHECK_THROWS_WITH(lt::hard_batches(lengths, Batches{{1, 3}}),
                    Contains("sample 3") && Contains("lengths of 3"));
  CHECK(lt::hard_batches(lengths, Batches{}).empty());
}
