// SPDX-License-Identifier: MIT
// Growth, spikes and fragments: what is noticed, and what must not be.
#include "support/precompiled.hpp"

#include <looptorch/memory/measure/memory_trends.hpp>

#include <functional>
#include <random>

namespace lt = looptorch;

namespace {

/// Returns the window in which growth is noticed, or -1.
int growth_noticed(const std::function<std::int64_t(int)>& left, int windows = 400) {
  lt::GrowthTrend trend;
  for (int i = 0; i < windows; ++i)
    if (trend.add(left(i), [] { return 0; })) return i;
  return -1;
}

/// Returns the window in which a spike is noticed, or -1.
int spike_noticed(const std::function<std::int64_t(int)>& peak, int windows = 1000) {
  lt::SpikeTrend trend;
  for (int i = 0; i < windows; ++i)
    if (trend.add(peak(i))) return i;
  return -1;
}

constexpr std::int64_t kMega = 1'000'000;

}  // namespace

TEST_CASE("growth: a few bytes in each window are noticed after seven blocks, with their number") {
  lt::GrowthTrend trend;
  std::optional<double> found;
  int windows = 0;
  while (!found && windows < 1000) found = trend.add(50 * kMega + 512 * windows++, [] { return 0; });
  CHECK(windows == 56);
  REQUIRE(found);
  CHECK(*found == Approx(512));
}

TEST_CASE("growth: noticed after noise, and when it begins late") {
  std::mt19937 random(1);
  CHECK(growth_noticed([&](int i) { return 50 * kMega + 4000 * i + std::int64_t(random() % 9000); }) > 0);
  const int late = growth_noticed([](int i) { return 50 * kMega + 4000 * std::max(0, i - 200); });
  CHECK(late >= 200);
  CHECK(late < 280);
  CHECK(growth_noticed([](int i) { return kMega + i / 50 * 100'000; }) > 0);  // an epoch's evaluation
  CHECK(growth_noticed([&](int i) {  // one quiet window in eight, which is not the block's last
          return 50 * kMega + 4000 * i + (i % 8 == 3 ? 0 : std::int64_t(random() % (5 * kMega)));
        }) > 0);
}

TEST_CASE("growth: not noticed in sound runs") {
  std::mt19937 random(1);
  CHECK(growth_noticed([](int) { return 50 * kMega; }) == -1);
  CHECK(growth_noticed([](int i) { return i < 1 ? 50 * kMega : 150 * kMega; }) == -1);  // moments
  CHECK(growth_noticed([&](int) { return std::int64_t(random() % (5 * kMega)); }) ==
        -1);                                                               // batches that stay
  CHECK(growth_noticed([](int i) { return 50 * kMega + i / 40; }) == -1);  // single bytes
  CHECK(growth_noticed([](int i) { return kMega * (i % 64 < 32 ? i % 32 : 32 - i % 32); }) == -1);
}

TEST_CASE("growth: what explains itself does not count") {
  lt::GrowthTrend trend;
  int asked = 0;
  for (int i = 0; i < 1000; ++i) {
    const std::int64_t moments = kMega * (i / 50);  // layers are unfrozen one by one
    CHECK_FALSE(trend.add(5 * kMega + moments, [&] { return ++asked, moments; }));
  }
  CHECK(asked == 20);
}

TEST_CASE("spike: a window far beyond the others is noticed at once") {
  CHECK(spike_noticed([](int i) { return i == 300 ? 1000 * kMega : 500 * kMega; }) == 300);
  lt::SpikeTrend trend;
  for (int i = 0; i < 100; ++i) CHECK_FALSE(trend.add(500 * kMega));
  const auto usual = trend.add(1000 * kMega);
  REQUIRE(usual);
  CHECK(double(*usual) == Approx(500e6).epsilon(1.0 / 12));
}

TEST_CASE("spike: not noticed in the first windows, nor by the usual spread of lengths") {
  std::mt19937 random(1);
  std::uniform_real_distribution<double> lengths(0.5, 1.0);
  CHECK(spike_noticed([](int i) { return i == 10 ? 1000 * kMega : 500 * kMega; }, 11) == -1);
  CHECK(spike_noticed([&](int) { return std::int64_t(1e9 * lengths(random)); }) == -1);
  CHECK(spike_noticed([](int i) { return i % 10 == 9 ? 1000 * kMega : 500 * kMega; }) == -1);  // one in ten
}

TEST_CASE("fragments: a quarter of what is held, and not little") {
  CHECK(lt::fragmented(4000 * kMega, 2000 * kMega) == 2000 * kMega);
  CHECK_FALSE(lt::fragmented(4000 * kMega, 3100 * kMega));
  CHECK_FALSE(lt::fragmented(40 * kMega, 2 * kMega));
  CHECK_FALSE(lt::fragmented(0, 0));
}
