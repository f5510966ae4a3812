// SPDX-License-Identifier: MIT
// The loader's core alone; includes no torch, so that it also builds by hand under ThreadSanitizer:
//   g++ -std=c++20 -g -O1 -fsanitize=thread -I include -I tests -o ordered_prefetch_tsan
//       tests/unit/data/loader/ordered_prefetch_test.cpp tests/support/main.cpp        (Catch2 3: and
//       -lCatch2Main -lCatch2)
// Tests data/loader: turn_lock
#include <looptorch/data/loader/ordered_prefetch.hpp>

#include "support/catch.hpp"
#include "support/watchdog.hpp"

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <random>
#include <set>
#include <stdexcept>
#include <string>

namespace {

using looptorch::testing::Watchdog;
using Prefetch = looptorch::detail::OrderedPrefetch<std::int64_t>;
using Stop = std::stop_token;

std::vector<std::int64_t> drain(Prefetch& prefetch) {
  std::vector<std::int64_t> values;
  while (const auto value = prefetch.next()) values.push_back(*value);
  return values;
}

std::vector<std::int64_t> numbers(std::int64_t first, std::int64_t end) {
  std::vector<std::int64_t> values;
  for (; first < end; ++first) values.push_back(first);
  return values;
}

void pause(int microseconds) { std::this_thread::sleep_for(std::chrono::microseconds(microseconds)); }

/// Waits until `condition` holds; the watchdog around it decides when that is a failure.
template <class Condition>
void eventually(Condition condition) {
  while (!condition()) pause(100);
}

}  // namespace

TEST_CASE("values come in order whatever the number of workers") {
  const Watchdog watchdog("ordered values");
  const int workers = GENERATE(0, 1, 2, 5, 16);
  const int prefetch = GENERATE(0, 1, 7);
  Prefetch values(0, 60, workers, prefetch, [](std::int64_t number, const Stop&) {
    if (number % 7 == 0) pause(300);  // later numbers overtake it
    return number;
  });
  CHECK(drain(values) == numbers(0, 60));
  CHECK_FALSE(values.next());
}

TEST_CASE("a sequence may begin late, and may be empty") {
  const Watchdog watchdog("late begin");
  const int workers = GENERATE(0, 3);
  std::atomic<int> made = 0;
  const auto make = [&made](std::int64_t number, const Stop&) { return ++made, number; };
  Prefetch late(57, 60, workers, 2, make);
  CHECK(drain(late) == numbers(57, 60));
  CHECK(made == 3);
  Prefetch empty(0, 0, workers, 2, make);
  CHECK_FALSE(empty.next());
  Prefetch beyond(5, 3, workers, 2, make);
  CHECK_FALSE(beyond.next());
  CHECK(made == 3);
}

TEST_CASE("no more values exist than workers + prefetch") {
  const Watchdog watchdog("memory bound");
  struct Counted {
    explicit Counted(std::atomic<int>& live) : live_(&live) { ++*live_; }
    Counted(Counted&& other) noexcept : live_(std::exchange(other.live_, nullptr)) {}
    Counted& operator=(Counted&& other) noexcept {
      std::swap(live_, other.live_);
      return *this;
    }
    ~Counted() {
      if (live_) --*live_;
    }
    std::atomic<int>* live_;
  };
  std::atomic<int> live = 0, most = 0;
  {
    looptorch::detail::OrderedPrefetch<Counted> values(0, 200, 3, 2, [&](std::int64_t, const Stop&) {
      Counted value(live);
      int seen = most;
      while (seen < live && !most.compare_exchange_weak(seen, live)) {
      }
      return value;
    });
    eventually([&] { return live == 5; });
    pause(20'000);  // a consumer that does not read: nothing more is made
    CHECK(live == 5);
    for (int taken = 0; auto value = values.next(); ++taken) {
      if (taken % 50 == 0) pause(5'000);
    }
    CHECK(most <= 6);  // those inside, and the one in the consumer's hands
  }
  CHECK(live == 0);
}

TEST_CASE("an exception arrives once, in its place, and ends the sequence") {
  const Watchdog watchdog("exception");
  const int workers = GENERATE(0, 1, 4);
  Prefetch values(0, 40, workers, 3, [](std::int64_t number, const Stop&) {
    if (number == 11) pause(3'000);
    if (number == 11 || number == 12) throw std::out_of_range("number " + std::to_string(number));
    return number;
  });
  for (std::int64_t expected = 0; expected < 11; ++expected) REQUIRE(values.next() == expected);
  CHECK_THROWS_WITH(values.next(), "number 11");
  CHECK_FALSE(values.next());
}

TEST_CASE("nothing is begun after an exception") {
  const Watchdog watchdog("nothing behind an exception");
  std::atomic<std::int64_t> furthest = 0;
  Prefetch values(0, 1'000, 2, 2, [&](std::int64_t number, const Stop&) -> std::int64_t {
    furthest = std::max<std::int64_t>(furthest, number);
    if (number == 1) throw std::runtime_error("stop here");
    return number;
  });
  CHECK(values.next() == 0);
  CHECK_THROWS(values.next());
  pause(5'000);
  CHECK(furthest < 6);
}

TEST_CASE("destruction and cancelling wait for what is in hand only") {
  const Watchdog watchdog("destruction");
  const int workers = GENERATE(1, 4);
  std::atomic<int> begun = 0, stopped = 0;
  Prefetch values(0, 1'000'000, workers, 2, [&](std::int64_t number, const Stop& stop) {
    ++begun;
    while (number >= 3 && !stop.stop_requested()) pause(100);
    if (number >= 3) ++stopped;
    return number;
  });
  CHECK(values.next() == 0);
  CHECK(values.next() == 1);
  eventually([&] { return begun == 3 + workers; });
  values.cancel();
  CHECK(stopped == workers);
  CHECK_FALSE(values.next());
  values.cancel();
}

TEST_CASE("a value that is destroyed unread, and exceptions that are never requested, are dropped") {
  const Watchdog watchdog("unread values");
  const auto alive = std::make_shared<int>(0);
  {
    looptorch::detail::OrderedPrefetch<std::shared_ptr<int>> values(
        0, 10, 2, 8, [alive](std::int64_t number, const Stop&) {
          if (number == 5) throw std::runtime_error("unread");
          return alive;
        });
    eventually([&] { return alive.use_count() >= 6; });
  }
  CHECK(alive.use_count() == 1);
}

TEST_CASE("each worker announces itself once, before its first value") {
  const Watchdog watchdog("on_start");
  std::mutex mutex;
  std::set<std::thread::id> started;
  bool announced = true;
  Prefetch values(
      0, 50, 3, 2,
      [&](std::int64_t number, const Stop&) {
        const std::lock_guard lock(mutex);
        announced = announced && started.count(std::this_thread::get_id()) == 1;
        return number;
      },
      [&] {
        const std::lock_guard lock(mutex);
        announced = announced && started.insert(std::this_thread::get_id()).second;
      });
  CHECK(drain(values).size() == 50);
  values.cancel();
  CHECK(announced);
  CHECK(started.size() == 3);
}

TEST_CASE("what was taken, waited for and lay ready is counted, and each worker's time") {
  const Watchdog watchdog("counts");
  std::atomic<int> made = 0;
  Prefetch values(0, 6, 2, 4, [&made](std::int64_t number, const Stop&) {
    pause(10'000);
    ++made;
    return number;
  });
  CHECK(values.counts().busy_seconds.size() == 2);
  CHECK(values.next() == 0);
  CHECK(values.counts().waited_for == 1);
  eventually([&made] { return made == 6; });
  pause(20'000);
  CHECK(drain(values) == numbers(1, 6));
  const auto counts = values.counts();
  CHECK(counts.taken == 6);
  CHECK(counts.waited_for == 1);
  CHECK(counts.queued == 5 + 4 + 3 + 2 + 1);
  const double busy = counts.busy_seconds[0] + counts.busy_seconds[1];
  CHECK(busy >= 0.06);
  Prefetch none(0, 3, 0, 4, [](std::int64_t number, const Stop&) { return number; });
  drain(none);
  CHECK((none.counts().taken == 3 && none.counts().waited_for == 3 && none.counts().queued == 0));
}

TEST_CASE("a timeout beyond what the clock can count is one without limit") {
  Prefetch values(0, 2, 1, 1, [](std::int64_t number, const Stop&) {
    pause(5'000);
    return number;
  });
  CHECK(values.next(std::chrono::duration<double>(1e300)) == 0);
  CHECK(values.next(std::chrono::duration<double>(1e10)) == 1);
}

TEST_CASE("values need not be assignable") {
  struct Fixed {
    const std::int64_t number;
  };
  const int workers = GENERATE(0, 2);
  looptorch::detail::OrderedPrefetch<Fixed> values(
      0, 5, workers, 1, [](std::int64_t number, const Stop&) { return Fixed{number}; });
  for (std::int64_t i = 0; i < 5; ++i) CHECK(values.next()->number == i);
}

TEST_CASE("500 random schedules of slow, throwing and early-destroyed consumers and workers") {
  std::mt19937 random(20'240'501);
  const auto upto = [&random](int bound) {
    return static_cast<int>(random() % static_cast<unsigned>(bound));
  };
  for (int schedule = 0; schedule < 500; ++schedule) {
    const Watchdog watchdog("schedule " + std::to_string(schedule));
    const int count = upto(40), workers = upto(6), prefetch = upto(5);
    const int throws_at = upto(2) ? upto(40) : 1'000, leaves_at = upto(2) ? upto(40) : 1'000;
    std::array<int, 40> work{};
    for (int& microseconds : work) microseconds = upto(4) ? 0 : upto(200);
    const int reading = upto(3) ? 0 : upto(100);
    CAPTURE(schedule, count, workers, prefetch, throws_at, leaves_at);

    std::array<std::atomic<int>, 40> made{};
    std::int64_t received = 0;
    bool threw = false;
    {
      Prefetch values(0, count, workers, prefetch, [&](std::int64_t number, const Stop&) {
        ++made[static_cast<std::size_t>(number)];
        if (const int time = work[static_cast<std::size_t>(number)]) pause(time);
        if (number == throws_at) throw std::runtime_error("planned");
        return number;
      });
      try {
        while (received < leaves_at) {
          const auto value = values.next();
          if (!value) break;
          REQUIRE(*value == received++);
          if (reading) pause(reading);
        }
      } catch (const std::runtime_error&) {
        threw = true;
        REQUIRE_FALSE(values.next());
      }
    }
    const int end = std::min(count, throws_at);
    REQUIRE(received == std::min(end, leaves_at));
    REQUIRE(threw == (throws_at < count && leaves_at > throws_at));
    for (const auto& times : made) REQUIRE(times <= 1);
  }
}
