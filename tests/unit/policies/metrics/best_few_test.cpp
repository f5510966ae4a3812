// SPDX-License-Identifier: MIT
#include <looptorch/policies/metrics/best_few.hpp>

#include "support/catch.hpp"

#include <cmath>
#include <cstdint>
#include <limits>
#include <set>

using looptorch::BestFew;
using looptorch::Better;

TEST_CASE("best few: keeps the best, the earlier of equal ones, and neither NaN nor the worst infinity") {
  BestFew best;
  CHECK(best.step() == -1);
  CHECK_FALSE(best.value());
  CHECK_FALSE(best.offer(NAN, 1, Better::higher, 2));
  CHECK_FALSE(best.offer(-std::numeric_limits<double>::infinity(), 2, Better::higher, 2));
  CHECK(best.offer(1, 3, Better::higher, 2));
  CHECK(best.offer(0.5, 4, Better::higher, 2));
  CHECK_FALSE(best.offer(0.5, 5, Better::higher, 2));
  CHECK(best.offer(1, 6, Better::higher, 2));
  CHECK(best.steps() == std::set<std::int64_t>{3, 6});
  CHECK(best.step() == 3);
  CHECK(best.offer(2, 7, Better::higher, 2));
  CHECK(best.entries()[1].step == 3);
  CHECK_FALSE(best.offer(0, 8, Better::higher, 2));

  CHECK(best.offer(3, 9, Better::higher));  // of fewer from now on
  CHECK(best.steps() == std::set<std::int64_t>{9});
}

TEST_CASE("best few: only what passes another value by more than the margin is better") {
  BestFew low, high;
  CHECK(low.offer(1.0, 5, Better::lower));
  CHECK_FALSE(low.offer(0.5, 7, Better::lower, 1, 0.5));
  CHECK(low.offer(0.25, 8, Better::lower, 1, 0.5));
  CHECK(low.value() == 0.25);
  CHECK(low.step() == 8);
  CHECK(high.offer(-2.0, 1, Better::higher, 1, 0.5));
  CHECK_FALSE(high.offer(-1.5, 2, Better::higher, 1, 0.5));
  CHECK(high.offer(-1.25, 3, Better::higher, 1, 0.5));
  CHECK_FALSE(high.offer(NAN, 4, Better::higher));
  CHECK(high.value() == -1.25);
}

TEST_CASE("best few: a step that is published twice stands there once, with its better value") {
  BestFew best;
  CHECK(best.offer(2, 1, Better::lower, 3));
  CHECK(best.offer(1, 1, Better::lower, 3));
  CHECK_FALSE(best.offer(3, 1, Better::lower, 3));
  CHECK(best.entries().size() == 1);
  CHECK(best.value() == 1.0);
}

TEST_CASE("best few: comes back from its state") {
  BestFew best, loaded;
  for (const double value : {4.0, 2.0, 3.0})
    best.offer(value, static_cast<std::int64_t>(value), Better::lower, 3);
  looptorch::StateDict state;
  best.save(state);
  loaded.load(state);
  REQUIRE(loaded.entries().size() == 3);
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(loaded.entries()[i].value == best.entries()[i].value);
    CHECK(loaded.entries()[i].step == best.entries()[i].step);
  }

  looptorch::StateDict empty;
  BestFew().save(empty);
  loaded.load(empty);
  CHECK(loaded.step() == -1);
}
