// SPDX-License-Identifier: MIT
// Shares of the full rate where a decay begins, at its end, after it, and where it has no steps.
// Tests policies/schedule: lr_cycles
#include "support/precompiled.hpp"

#include <looptorch/policies/schedule/lr_cycles.hpp>
#include <looptorch/policies/schedule/lr_decay.hpp>

#include <cmath>
#include <utility>

using namespace looptorch;
using looptorch::detail::share_at;

TEST_CASE("decays: one without steps begins at the full rate, and is at its end a step later") {
  CHECK(share_at(LinearDecay{.final_ratio = 0.1}, {.steps = 0, .length = 0}) == 1);
  CHECK(share_at(LinearDecay{.final_ratio = 0.1}, {.steps = 1, .length = 0}) == Approx(0.1));
  CHECK(share_at(CosineDecay{}, {.steps = 0, .length = -5}) == 1);
}

TEST_CASE("decays: after the end the rate stays as it is there") {
  CHECK(share_at(LinearDecay{.final_ratio = 0.25}, {.steps = 30, .length = 10}) == 0.25);
  CHECK(share_at(CosineDecay{.final_ratio = 0.25}, {.steps = 30, .length = 10}) == 0.25);
  CHECK(share_at(PolynomialDecay{.power = 2, .final_ratio = 0.25}, {.steps = 30, .length = 10}) == 0.25);
  for (const bool linear : {false, true})
    CHECK(share_at(OneCycle{.final_ratio = 0.25, .linear = linear}, {.steps = 30, .length = 10}) ==
          Approx(0.25));
}

TEST_CASE("decays: a cycle of three phases ends where it ends, too") {
  const OneCycle cycle{.final_ratio = 0.25, .three_phases = true};
  for (const std::int64_t step : {9, 10, 14, 30})
    CHECK(share_at(cycle, {.steps = step, .length = 10}) == Approx(0.25));
}

TEST_CASE("decays: shares of the full rate are from 0 to 1, both included") {
  for (const double ratio : {0.0, 1.0})
    CHECK_NOTHROW(looptorch::detail::check(LinearDecay{.final_ratio = ratio}));
  for (const double ratio : {-0.1, 1.1, double(NAN)})
    CHECK_THROWS_WITH(looptorch::detail::check(LinearDecay{.final_ratio = ratio}),
                      Catch::Contains("is a share of the full rate"));
}

TEST_CASE("decays: a function is given steps from 0 on, and must return a share") {
  std::pair<std::int64_t, std::int64_t> given{-1, -1};
  double returns = 2;
  const FunctionDecay decay{[&](std::int64_t step, std::int64_t total) {
    return given = {step, total}, returns;
  }};
  CHECK(share_at(decay, {.steps = 3, .length = -4}) == 2);
  CHECK(given == std::pair<std::int64_t, std::int64_t>{3, 0});
  for (const double wrong : {-0.5, double(NAN), HUGE_VAL}) {
    returns = wrong;
    CHECK_THROWS_WITH(share_at(decay, {.steps = 3, .length = 9}),
                      Catch::Contains("must return a share of at least 0"));
  }
}
