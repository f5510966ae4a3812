// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/base/process/parallel_for_each.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <numeric>
#include <set>
#include <string>
#include <thread>
#include <vector>

using looptorch::parallel_for_each;

namespace {

std::vector<int> numbers(int count) {
  std::vector<int> all(static_cast<std::size_t>(count));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

}  // namespace

TEST_CASE("parallel_for_each works on each item once, whatever the number of threads") {
  for (const std::int64_t threads : {1, 2, 8}) {
    CAPTURE(threads);
    std::vector<int> items(1'000, 0);
    std::vector<std::size_t> reports;
    parallel_for_each(
        items, threads, [](int& item) { ++item; }, [&](std::size_t done) { reports.push_back(done); });
    CHECK(items == std::vector<int>(1'000, 1));
    REQUIRE(reports.size() == 1'000);  // one at a time, in order
    for (std::size_t i = 0; i < reports.size(); ++i) REQUIRE(reports[i] == i + 1);
  }
}

TEST_CASE("parallel_for_each takes no more threads than it may, the caller's among them") {
  std::mutex mutex;
  std::set<std::thread::id> threads;
  std::atomic<int> at_once{0}, most{0};
  parallel_for_each(numbers(40), 3, [&](int) {
    const int now = ++at_once;
    for (int seen = most; seen < now && !most.compare_exchange_weak(seen, now);) {
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    --at_once;
    const std::lock_guard lock(mutex);
    threads.insert(std::this_thread::get_id());
  });
  CHECK(most <= 3);
  CHECK(most >= 2);
  CHECK(threads.size() <= 3);
  std::thread::id alone;
  parallel_for_each(numbers(1), 8, [&](int) { alone = std::this_thread::get_id(); });
  CHECK(alone == std::this_thread::get_id());
}

TEST_CASE("parallel_for_each throws what the first item in order threw, and begins none after it") {
  for (const std::int64_t threads : {1, 4}) {
    CAPTURE(threads);
    std::atomic<int> begun{0};
    const auto work = [&](int item) {
      ++begun;
      if (item < 10) return;
      // the later item fails first
      if (item == 10) std::this_thread::sleep_for(std::chrono::milliseconds(20));
      throw looptorch::Error("item " + std::to_string(item));
    };
    CHECK_THROWS_WITH(parallel_for_each(numbers(1'000), threads, work), "item 10");
    CHECK(begun <= 10 + threads);
  }
}

TEST_CASE("parallel_for_each ends at what its report throws, and refuses to work without a thread") {
  const auto report = [](std::size_t done) {
    if (done == 5) throw looptorch::Error("enough");
  };
  CHECK_THROWS_WITH(parallel_for_each(
                        numbers(100), 2, [](int) {}, report),
                    "enough");
  CHECK_THROWS_AS(parallel_for_each(numbers(3), 0, [](int) {}), looptorch::UsageError);
  CHECK_THROWS_WITH(parallel_for_each(numbers(3), -1, [](int) {}),
                    "parallel_for_each: -1 threads can do nothing");
  CHECK_NOTHROW(parallel_for_each(std::vector<int>{}, 4, [](int) { throw looptorch::Error("no item"); }));
}
