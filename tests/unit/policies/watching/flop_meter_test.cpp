// SPDX-License-Identifier: MIT
// Which windows are counted, what of them, and the rates that follow.
//
// Tests policies/watching: flop_meter
#include "support/precompiled.hpp"

#include <looptorch/policies/watching/flop_meter.hpp>

#include <chrono>
#include <optional>

namespace lt = looptorch;
using lt::RunPhase;
using lt::detail::FlopMeter;
using std::chrono::seconds;

namespace flop_meter {

constexpr lt::DevicePeak kPeak{.fp32 = 1e-6, .tf32 = 1e-6};  // 10^6 a second

void multiply(std::int64_t rows) { at::mm(at::ones({rows, 4}), at::ones({4, 5})); }  // 40 FLOPs a row

/// A window at a time whose forward and backward multiply as many rows each as it has samples.
struct Windows {
  FlopMeter meter;
  std::int64_t samples_so_far = 0;
  FlopMeter::Clock::time_point begin = {};

  void make(int at_second, std::int64_t samples) {
    meter.begin_window(begin + seconds(at_second), samples_so_far);
    meter.enter(RunPhase::forward);
    multiply(samples);
    meter.enter(RunPhase::evaluation);
    multiply(1000);
    meter.enter(RunPhase::backward);
    multiply(samples);
    meter.enter(RunPhase::update);
    multiply(1000);
    meter.end_window(samples_so_far += samples);
  }
};

}  // namespace flop_meter

using namespace flop_meter;

TEST_CASE("FlopMeter: forward and backward of the second window, by its samples") {
  Windows windows{FlopMeter(true, kPeak)};
  windows.make(0, 7);
  CHECK(!windows.meter.rates(10, 1));
  windows.make(0, 4);
  const auto rates = windows.meter.rates(20, 2);
  REQUIRE(rates);
  CHECK(rates->flops_per_second == Approx(80 * 10));
  CHECK(*rates->utilization == Approx(80 * 10 / 1e6));
  CHECK(windows.meter.rates(5, 1)->flops_per_second == Approx(80 * 5));
  const auto of_run = windows.meter.of_run();  // 25 samples in 3 seconds
  REQUIRE(of_run);
  CHECK(of_run->flops_per_second == Approx(80 * 25 / 3.0));
  CHECK(*of_run->utilization == Approx(80 * 25 / 3e6));
}

TEST_CASE("FlopMeter: at most one window in five seconds") {
  Windows windows{FlopMeter(true, kPeak)};
  windows.make(0, 1);
  windows.make(1, 1);
  const auto counts_at = [&](int at_second) {
    windows.meter.begin_window(windows.begin + seconds(at_second), 0);
    windows.meter.enter(RunPhase::forward);
    multiply(1);
    windows.meter.end_window(1000);
    return windows.meter.rates(1, 1)->flops_per_second < 1;
  };
  CHECK(!counts_at(2));
  CHECK(!counts_at(5));
  CHECK(counts_at(6));
}

TEST_CASE("FlopMeter: no peak, no share; off, no numbers; a window that an exception ends is forgotten") {
  Windows unknown{FlopMeter(true, std::nullopt)};
  unknown.make(0, 1), unknown.make(1, 1);
  CHECK(unknown.meter.rates(1, 1)->flops_per_second == Approx(80));
  CHECK(!unknown.meter.rates(1, 1)->utilization);

  Windows off{FlopMeter(false, kPeak)};
  off.make(0, 1), off.make(1, 1);
  CHECK(!off.meter.rates(1, 1));
  CHECK(!off.meter.of_run());

  Windows ended{FlopMeter(true, kPeak)};
  ended.make(0, 1);
  ended.meter.begin_window(ended.begin + seconds(1), 1);
  ended.meter.enter(RunPhase::forward);
  multiply(5);
  ended.meter.drop_window();
  ended.meter.end_window(9);
  CHECK(!ended.meter.rates(1, 1));
  ended.make(20, 2);
  CHECK(ended.meter.rates(1, 1)->flops_per_second == Approx(80));
}

TEST_CASE("FlopMeter: windows of other lengths weigh as their samples do, the last sixteen") {
  Windows windows{FlopMeter(true, kPeak)};
  windows.make(0, 1);
  for (int i = 0; i < 20; ++i) {
    windows.meter.begin_window(windows.begin + seconds(10 * i + 1), 0);
    windows.meter.enter(RunPhase::forward);
    multiply(i < 4 ? 1000 : i % 2 ? 1 : 3);
    windows.meter.end_window(i % 2 ? 1 : 4);
  }
  CHECK(windows.meter.rates(1, 1)->flops_per_second == Approx(40 * (1 + 3) / 5.0));
}
