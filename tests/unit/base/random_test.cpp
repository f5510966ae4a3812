// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/base/random.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

TEST_CASE("SplitMix64 gives its published numbers") {
  looptorch::SplitMix64 random(1234567);  // Rosetta Code's check values
  for (const std::uint64_t expected : {6457827717110365317U, 3203168211198807973U, 9817491932198370423U})
    CHECK(random.next() == expected);
}

TEST_CASE("bounded numbers are unbiased for a bound that does not divide 2^64") {
  const std::uint64_t bound = std::uint64_t{3}
                              << 61;  // 1.5 * 2^62 ... a plain modulus would favour the lower half by a half
  looptorch::SplitMix64 random(1);
  int low = 0;
  for (int i = 0; i < 10'000; ++i) {
    const std::uint64_t value = random.below(bound);
    REQUIRE(value < bound);
    low += value < bound / 2;
  }
  CHECK(std::abs(low - 5'000) < 250);
}

TEST_CASE("uniform numbers are the upper 53 bits, from 0 to just below 1") {
  CHECK(looptorch::uniform_from(0) == 0);
  CHECK(looptorch::uniform_from(~std::uint64_t{0}) == 1 - 0x1p-53);
  CHECK(looptorch::uniform_from(std::uint64_t{1} << 63) == 0.5);
  looptorch::SplitMix64 bits(9), random(9);
  double sum = 0;
  for (int i = 0; i < 10'000; ++i) {
    const double value = random.uniform();
    REQUIRE(value == looptorch::uniform_from(bits.next()));
    sum += value;
  }
  CHECK(std::abs(sum / 10'000 - 0.5) < 0.015);  // 5 standard deviations
}

TEST_CASE("dice fall within their bounds, reach both, and are part of the contract") {
  looptorch::Dice dice(9);
  looptorch::SplitMix64 random(9);
  CHECK(dice.roll() == random.next());
  CHECK(dice.share() == random.uniform());
  CHECK(dice.below(1'000) == random.below(1'000));
  std::set<int> seen;
  for (int i = 0; i < 500; ++i) seen.insert(dice.between(-2, 3));
  CHECK(seen == std::set{-2, -1, 0, 1, 2, 3});
  CHECK(dice.between(INT64_MIN, INT64_MAX - 1) < INT64_MAX);
  std::set<std::string> words;
  const std::vector<std::string> from{"a", "b"};
  for (int i = 0; i < 50; ++i) words.insert(dice.pick(from));
  CHECK(words.size() == 2);
  CHECK(looptorch::Dice(1).pick(std::array{7}) == 7);
}

TEST_CASE("derived seeds are part of the contract, and those of neighbours have nothing in common") {
  CHECK(looptorch::derive_seed(0, 0) == 0x48218226ff3cd4bfU);
  CHECK(looptorch::derive_seed(42, 7) != looptorch::derive_seed(7, 42));
  std::set<std::uint64_t> seeds;
  for (std::uint64_t seed = 0; seed < 100; ++seed)
    for (std::uint64_t number = 0; number < 100; ++number)
      seeds.insert(looptorch::derive_seed(seed, number) >> 32);  // the upper half alone tells them apart
  CHECK(seeds.size() > 9'980);
}

TEST_CASE("shuffle keeps the values, and gives each order of three as often as any other") {
  std::map<std::vector<int>, int> seen;
  looptorch::SplitMix64 random(3);
  for (int i = 0; i < 6'000; ++i) {
    std::vector<int> values{1, 2, 3};
    looptorch::shuffle(std::span(values), random);
    ++seen[values];
  }
  CHECK(seen.size() == 6);
  for (const auto& [order, times] : seen) CHECK(std::abs(times - 1'000) < 150);  // 5 standard deviations
  std::vector<int> none;
  looptorch::shuffle(std::span(none), random);
  CHECK(none.empty());
}
