// SPDX-License-Identifier: MIT
// Random schedules of the loader's core, which includes no torch, for the sanitizers: workers and consumers
// that are slow, throw, stop reading, cancel, keep what they read or leave; indexed data and streams whose
// readers take turns; values that live in reused slots. A watchdog ends a schedule that hangs.
//
//   schedules COUNT [SEED]      what went wrong, if anything did, can be run again by its seed: schedules 1
//   SEED
#include <looptorch/data/batch/batch_memory_pool.hpp>
#include <looptorch/data/loader/ordered_prefetch.hpp>
#include <looptorch/data/loader/turn_lock.hpp>

#include "support/watchdog.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
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
#include <vector>

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
    keeps = upto(4);
    for (int& time : work) time = upto(4) ? 0 : upto(200);
    for (int& time : turn) time = upto(6) ? 0 : upto(60);
  }

  int upto(int bound) { return static_cast<int>(random() % static_cast<unsigned>(bound)); }
  static constexpr int never = 1'000;

  std::mt19937_64 random;
  int count, first, workers, prefetch, throws_at, leaves_at, ends_at, reading_time, keeps;
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

using looptorch::detail::BatchMemoryPool;

BatchMemoryPool::Memory allocate(std::size_t bytes) { return std::make_unique<std::byte[]>(bytes); }

/// As many numbers as it takes, all the same, in a slot; counts those alive.
struct Value {
  Value(std::int64_t of, BatchMemoryPool& slots, std::atomic<int>& live)
      : number_(slots.take(0, bytes(of))), live_(&live) {
    std::fill_n(static_cast<std::int64_t*>(number_->data()), count(of), of);
    ++live;
  }
  Value(Value&& other) noexcept
      : number_(std::move(other.number_)), live_(std::exchange(other.live_, nullptr)) {}
  Value& operator=(Value&&) = delete;
  ~Value() {
    if (live_) --*live_;
  }

  /// False if another value was written into its slot.
  bool is(std::int64_t number) const {
    const auto* const first = static_cast<const std::int64_t*>(number_->data());
    return std::all_of(first, first + count(number), [number](std::int64_t at) { return at == number; });
  }

 private:
  static std::int64_t count(std::int64_t number) { return 1 + number * 7 % 11; }
  static std::size_t bytes(std::int64_t number) {
    return static_cast<std::size_t>(count(number)) * sizeof(std::int64_t);
  }

  BatchMemoryPool::Lease number_;
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
    require(slots_->counts().slots <= most_values() + plan_.keeps, "there are too many slots", seed_);
    slots_->trim();
    slots_.reset();  // those that are kept outlive it
    check_kept();
    kept_.clear();
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
        std::optional<Made> made = values.next();
        if (!made || !*made) break;
        require((*made)->is(received_), "values are out of order, or share a slot", seed_);
        require(live_ <= most_values() + plan_.keeps, "too many values are alive", seed_);
        if (plan_.keeps) keep(received_, std::move(**made));
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

  /// Inside, and in the consumer's hands.
  int most_values() const { return plan_.workers + plan_.prefetch + 1; }

  void keep(std::int64_t number, Value&& value) {
    if (static_cast<int>(kept_.size()) == plan_.keeps) check_kept(), kept_.clear();
    kept_.emplace_back(number, std::move(value));
  }

  void check_kept() const {
    for (const auto& [number, value] : kept_)
      require(value.is(number), "a value that is kept was written over", seed_);
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
    return Value(number, *slots_, live_);
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
  looptorch::detail::TurnLock turns_;
  std::int64_t in_stream_;
  int received_ = 0;
  std::shared_ptr<BatchMemoryPool> slots_ = std::make_shared<BatchMemoryPool>(&allocate);
  std::vector<std::pair<std::int64_t, Value>> kept_;
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
    const looptorch::testing::Watchdog watchdog("schedule " + std::to_string(seed));
    Schedule schedule(seed);
    Run(schedule, seed)();
  }
  std::printf("%llu schedules\n", static_cast<unsigned long long>(schedules));
}
