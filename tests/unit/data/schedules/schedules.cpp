// SPDX-License-Identifier: MIT
// Random schedules of the loader's core, which includes no torch, for the sanitizers: workers and consumers
// that are slow, throw, stop reading, cancel or leave; indexed data and streams whose readers take turns. A
// watchdog ends a schedule that hangs.
//
//   schedules COUNT [SEED]      what went wrong, if anything did, can be run again by its seed: schedules 1
//   SEED
#include <looptorch/data/detail/ordered_prefetch.hpp>
#include <looptorch/data/detail/turns.hpp>

#include "support/watchdog.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

namespace {

constexpr int kMost = 40;

/// One schedule, drawn from its seed.
struct Schedule {
  explicit Schedule(std::uint64_t seed) : random(seed) {
    count = upto(kMost);
    first = upto(4) ? 0 : upto(5);
    workers = upto(6);
    prefetch = upto(5);
    throws_at = upto(2) ? first + upto(kMost) : never;
    leaves_at = upto(2) ? upto(kMost) : never;
    cancels = upto(2);
    streams = upto(3) == 0;
    ends_at = streams && upto(2) ? upto(kMost) : never;
    reading_time = upto(3) ? 0 : upto(100);
    for (int& time : work) time = upto(4) ? 0 : upto(200);
    for (int& time : turn) time = upto(6) ? 0 : upto(60);
  }

  int upto(int bound) { return static_cast<int>(random() % static_cast<unsigned>(bound)); }
  static constexpr int never = 1'000;

  std::mt19937_64 random;
  int count, first, workers, prefetch, throws_at, leaves_at, ends_at, reading_time;
  bool cancels, streams;
  std::array<int, kMost> work{}, turn{};
};

void pause(int microseconds) {
  if (microseconds > 0) std::this_thread::sleep_for(std::chrono::microseconds(microseconds));
}

void require(bool holds, const char* what, std::uint64_t seed) {
  if (holds) return;
  std::fprintf(stderr, "schedule %llu: %s\n", static_cast<unsigned long long>(seed), what);
  std::abort();
}

/// On the heap, so that a use after its end is seen; counts those alive.
struct Value {
  Value(std::int64_t of, std::atomic<int>& live) : number(std::make_unique<std::int64_t>(of)), live_(&live) {
    ++live;
  }
  Value(Value&& other) noexcept
      : number(std::move(other.number)), live_(std::exchange(other.live_, nullptr)) {}
  Value& operator=(Value&&) = delete;
  ~Value() {
    if (live_) --*live_;
  }
  std::unique_ptr<std::int64_t> number;

 private:
  std::atomic<int>* live_;
};
/// Without a value where a stream has ended.
using Made = std::optional<Value>;

class Run {
 public:
  Run(Schedule& schedule, std::uint64_t seed)
      : plan_(schedule), seed_(seed), turns_(schedule.first), in_stream_(schedule.first) {}

  void operator()() {
    const bool threw = consume();
    const int end = std::max(std::min({plan_.count, plan_.throws_at, plan_.ends_at}), plan_.first);
    require(received_ == std::min(end, std::max(plan_.leaves_at, plan_.first)), "values are missing", seed_);
    const bool must_throw =
        plan_.throws_at < std::min(plan_.count, plan_.ends_at) && plan_.leaves_at > plan_.throws_at;
    require(threw == must_throw, "an exception is missing, or came unplanned", seed_);
    for (const auto& times : made_) require(times <= 1, "a value was made twice", seed_);
    require(live_ == 0, "a value outlived its sequence", seed_);
    require(inside_ == 0, "a worker outlived its sequence", seed_);
  }

 private:
  bool consume() {
    looptorch::detail::OrderedPrefetch<Made> values(
        plan_.first, plan_.count, plan_.workers, plan_.prefetch,
        [this](std::int64_t number, const std::stop_token& stop) { return make(number, stop); });
    received_ = plan_.first;
    try {
      while (received_ < plan_.leaves_at) {
        const std::optional<Made> made = values.next();
        if (!made || !*made) break;
        require(*(*made)->number == received_, "values are out of order", seed_);
        require(live_ <= std::max(plan_.workers, 0) + plan_.prefetch + 1, "too many values are alive", seed_);
        ++received_;
        pause(plan_.reading_time);
      }
      if (plan_.cancels) {
        values.cancel();
        require(!values.next(), "a value came after the end", seed_);
      }
    } catch (const std::runtime_error&) {
      require(!values.next(), "a value came after an exception", seed_);
      require(values.counts().taken == received_ - plan_.first + 1, "what was taken is miscounted", seed_);
      return true;
    }
    return false;
  }

  Made make(std::int64_t number, const std::stop_token& stop) {
    ++inside_;
    const std::unique_ptr<std::atomic<int>, void (*)(std::atomic<int>*)> leave(
        &inside_, [](auto* inside) { --*inside; });
    const auto place = static_cast<std::size_t>(number);
    ++made_[place];
    if (plan_.streams && !take_turn(number)) return std::nullopt;
    pause(plan_.work[place]);
    if (stop.stop_requested()) throw std::logic_error("nobody sees this");
    if (number == plan_.throws_at) throw std::runtime_error("planned");
    return Value(number, live_);
  }

  /// Reads the stream, which knows no locks; false at its end.
  bool take_turn(std::int64_t number) {
    const auto turn = turns_.wait_for(number);
    pause(plan_.turn[static_cast<std::size_t>(number)]);
    if (in_stream_ >= plan_.ends_at) return false;
    require(in_stream_++ == number, "turns are out of order", seed_);
    return true;
  }

  Schedule& plan_;
  const std::uint64_t seed_;
  std::array<std::atomic<int>, kMost> made_{};
  std::atomic<int> live_ = 0, inside_ = 0;
  looptorch::detail::Turns turns_;
  std::int64_t in_stream_;
  int received_ = 0;
};

}  // namespace

int main(int count, char** arguments) {
  const std::uint64_t schedules = count > 1 ? std::strtoull(arguments[1], nullptr, 10) : 0;
  const std::uint64_t first = count > 2 ? std::strtoull(arguments[2], nullptr, 10) : 1;
  if (schedules == 0) {
    std::fprintf(stderr, "usage: schedules COUNT [SEED]\n");
    return 2;
  }
  for (std::uint64_t seed = first; seed < first + schedules; ++seed) {
    const looptorch::test::Watchdog watchdog("schedule " + std::to_string(seed));
    Schedule schedule(seed);
    Run(schedule, seed)();
  }
  std::printf("%llu schedules\n", static_cast<unsigned long long>(schedules));
}
