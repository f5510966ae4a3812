// SPDX-License-Identifier: MIT
// The estimate settles: simulated runs, with clocks of their own.
//
// Tests policies/watching: time_left, progress_line
#include "support/precompiled.hpp"

#include <looptorch/policies/watching/progress_line.hpp>
#include <looptorch/policies/watching/time_left.hpp>

#include <random>

using looptorch::detail::TimeLeft;

TEST_CASE("time_left: nothing is known before a second step") {
  TimeLeft left;
  CHECK_FALSE(left.seconds_to(10));
  left.note(30, 1);
  CHECK_FALSE(left.seconds_to(10));
  left.note(31, 2);
  CHECK(*left.seconds_to(10) == Approx(8));
  left.note(31, 3);  // a clock of coarse ticks
  CHECK(*left.seconds_to(10) == Approx(3.5));
  CHECK(*left.seconds_to(2) == 0);
}

TEST_CASE("time_left: a slow first step is no part of it, and noise soon averages out") {
  std::mt19937 random(7);
  std::uniform_real_distribution<double> seconds(0.05, 0.15);
  TimeLeft left;
  constexpr std::int64_t kSteps = 20000;
  double now = 60;  // the first step
  left.note(now, 1);
  double worst = 0;
  for (std::int64_t step = 2; step <= kSteps; ++step) {
    left.note(now += seconds(random), step);
    const double truth = 0.1 * double(kSteps - step);
    if (step > 200 && step < kSteps) worst = std::max(worst, std::abs(*left.seconds_to(kSteps) / truth - 1));
  }
  CHECK(worst < 0.06);
  CHECK(*left.seconds_to(kSteps) == 0);
}

TEST_CASE("time_left: follows a change of pace, and evaluations between epochs are part of it") {
  TimeLeft left;
  double now = 0;
  for (std::int64_t step = 1; step <= 3000; ++step) left.note(now += step < 1000 ? 1.0 : 0.1, step);
  CHECK(*left.seconds_to(4000) > 100);
  for (std::int64_t step = 3001; step <= 12000; ++step) left.note(now += 0.1, step);
  CHECK(*left.seconds_to(13000) == Approx(100).epsilon(0.01));

  TimeLeft validated;
  now = 0;
  for (std::int64_t step = 1; step <= 1000; ++step)
    validated.note(now += 0.1 + ((step - 1) % 100 == 0 ? 5.0 : 0.0), step);
  CHECK(*validated.seconds_to(2000) == Approx(150).epsilon(0.1));
}

TEST_CASE("progress_line: what matters least goes first, and no number is cut") {
  using looptorch::detail::ProgressLine;
  ProgressLine line;
  line.add("step", "7/9", 0);
  line.add("a_metric_with_a_very_long_name", "0.25", 1);
  line.add("ärger", "1e-05", 1);
  line.add("", "12 samples/s", 3);
  line.add("lr", "", 2);  // has nothing to say
  line.add("ETA", "0:05", 2);
  CHECK(line.text() == "step 7/9  a_metric_with_a_very_long_name 0.25  ärger 1e-05  12 samples/s  ETA 0:05");
  CHECK(line.text(200) == line.text());
  CHECK(line.text(75) == "step 7/9  a_metric…ng_name 0.25  ärger 1e-05  12 samples/s  ETA 0:05");
  CHECK(line.text(60) == "step 7/9  a_metric…ng_name 0.25  ärger 1e-05  ETA 0:05");
  CHECK(line.text(45) == "step 7/9  a_metric…ng_name 0.25  ärger 1e-05");
  CHECK(line.text(40) == "step 7/9  a_m…ame 0.25  ärger 1e-05");
  CHECK(line.text(30) == "step 7/9  a_m…ame 0.25");
  CHECK(line.text(10) == "step 7/9");
  CHECK(line.text(6) == "step 7");
}
