// SPDX-License-Identifier: MIT
// The best of a series: what counts as better, and what is kept of it.
#include "support/precompiled.hpp"

#include <looptorch/policies/metrics/best_so_far.hpp>

#include <limits>

namespace lt = looptorch;
using lt::Better;

TEST_CASE("only what passes the best by more than the margin is better") {
  lt::BestSoFar low, high;
  CHECK_FALSE(low.value().has_value());
  CHECK(low.step() == -1);
  CHECK(low.offer(1.0, 5, Better::lower));
  CHECK_FALSE(low.offer(1.0, 6, Better::lower));
  CHECK_FALSE(low.offer(0.5, 7, Better::lower, 0.5));
  CHECK(low.offer(0.25, 8, Better::lower, 0.5));
  CHECK(low.value() == 0.25);
  CHECK(low.step() == 8);
  CHECK(high.offer(-2.0, 1, Better::higher, 0.5));
  CHECK_FALSE(high.offer(-1.5, 2, Better::higher, 0.5));
  CHECK(high.offer(-1.25, 3, Better::higher, 0.5));
}

TEST_CASE("NaN is never better, first or later, nor is the worst infinity") {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const Better better : {Better::lower, Better::higher}) {
    lt::BestSoFar best;
    CHECK_FALSE(best.offer(std::nan(""), 1, better));
    CHECK_FALSE(best.offer(better == Better::lower ? infinity : -infinity, 2, better));
    CHECK_FALSE(best.value().has_value());
    CHECK(best.offer(3.0, 3, better));
    CHECK_FALSE(best.offer(std::nan(""), 4, better));
    CHECK(best.value() == 3.0);
  }
}

TEST_CASE("it comes back from its state, empty or not") {
  for (const bool empty : {true, false}) {
    lt::BestSoFar best, loaded;
    if (!empty) best.offer(0.125, 7, Better::lower);
    loaded.offer(-1.0, 1, Better::lower);
    lt::StateDict state;
    best.save(state);
    loaded.load(state);
    CHECK(loaded.value() == best.value());
    CHECK(loaded.step() == best.step());
  }
}
