// SPDX-License-Identifier: MIT
// Holds the work that was issued to streams and has not run yet, in a queue for each stream. An entry may run
// when everything that its clock covers has run. Work runs in the order of issue or, with a seed, in a random
// one that the clocks allow. The seed also decides how far the work is behind the host.
#pragma once

#include "support/accelerator/order/clock.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>

namespace looptorch_test::accelerator {

/// Random numbers of which a seed always gives the same (splitmix64).
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next();
  /// Returns a number below `count`.
  std::size_t below(std::size_t count) { return static_cast<std::size_t>(next() % count); }
  bool chance(double probability) { return static_cast<double>(next() >> 11) * 0x1p-53 < probability; }

 private:
  std::uint64_t state_;
};

struct Work {
  int stream;
  Time time;
  Clock after;  // of its stream when it was issued
  std::function<void()> run;
};

class WorkQueue {
 public:
  void push(Work work);
  /// Runs everything that `clock` covers. With a seed, other work may run in between.
  void run_until(const Clock& clock);
  void run_all();
  /// Runs as much as the seed says, nothing without one.
  void run_some();
  /// Runs one entry that may run. Returns false if the queue is empty.
  bool run_one();
  /// True if `clock` covers work that has not run.
  [[nodiscard]] bool holds(const Clock& clock) const;
  [[nodiscard]] std::size_t size() const { return size_; }

  /// Takes the order from a seed, or from the program. The queue must be empty.
  void take_order_from(std::optional<std::uint64_t> seed);

 private:
  struct Entry {
    Work work;
    std::uint64_t number;
  };
  using Queue = std::deque<Entry>;

  [[nodiscard]] bool may_run(const Entry& entry) const;
  /// Returns a stream whose first entry may run and satisfies `wanted`, or -1.
  template <class Wanted>
  int choose(const Wanted& wanted);
  void run_first(int stream);
  void draw_temper();

  std::array<Queue, kStreams> queues_;
  std::size_t size_ = 0;
  std::uint64_t issued_ = 0;
  std::optional<Dice> dice_;
  double eagerness_ = 0;               // of the devices: the chance that one more entry runs after each issue
  std::array<bool, kStreams> held_{};  // streams that run only when a wait needs them
};

}  // namespace looptorch_test::accelerator
