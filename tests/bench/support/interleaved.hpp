// SPDX-License-Identifier: MIT
// Times the Trainer against a peer within one fit: each makes a block of steps in turn, so that clock rates
// and other programs affect both alike. The results are medians.
#pragma once

#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <utility>
#include <vector>

namespace bench {

/// The extent of a measurement.
struct Plan {
  std::int64_t steps = 50;          ///< Steps in a block.
  std::int64_t rounds = 300;        ///< Blocks of each side that are measured.
  std::int64_t warm_up_rounds = 5;  ///< Blocks of each side before the measured ones.

  [[nodiscard]] std::int64_t total_steps() const { return steps * (warm_up_rounds + rounds); }
};

/// The run time of this thread, which stops while another program has the core. The measured code has one
/// thread and never waits, so on an idle machine this equals wall time.
struct Clock {
  using duration = std::chrono::nanoseconds;
  using time_point = std::chrono::time_point<Clock, duration>;
  static time_point now() {
    timespec time{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return time_point(std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec));
  }
};

inline double microseconds(Clock::duration time) {
  return std::chrono::duration<double, std::micro>(time).count();
}

inline double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// Microseconds a step, of one round or of all.
struct Times {
  double ours;
  double peer;
};

/// Returns each side's median.
inline Times medians(const std::vector<Times>& rounds) {
  std::vector<double> ours, peers;
  for (const Times& round : rounds) ours.push_back(round.ours), peers.push_back(round.peer);
  return {median(std::move(ours)), median(std::move(peers))};
}

/// Counts the rounds and keeps their times. `peer` is called once a step; `warm`, once, after both sides have
/// made the warm-up's steps.
template <class Peer, class Warm>
class Rounds {
 public:
  Rounds(Plan plan, Peer peer, Warm warm) : plan_(plan), peer_(std::move(peer)), warm_(std::move(warm)) {}

  /// Begins our next block.
  void begin() { begin_ = Clock::now(); }

  /// Ends our block and runs the peer's.
  void take_turns() {
    const auto middle = Clock::now();
    for (std::int64_t i = 0; i < plan_.steps; ++i) peer_();
    const auto end = Clock::now();
    if (++round_ == plan_.warm_up_rounds) warm_();
    const auto steps = static_cast<double>(plan_.steps);
    if (round_ > plan_.warm_up_rounds)
      times_.push_back({microseconds(middle - begin_) / steps, microseconds(end - middle) / steps});
  }

  [[nodiscard]] const Plan& plan() const { return plan_; }
  [[nodiscard]] Times times() const { return medians(times_); }

 private:
  Plan plan_;
  Peer peer_;
  Warm warm_;
  std::int64_t round_ = 0;
  Clock::time_point begin_;
  std::vector<Times> times_;
};

/// Repeats `batches` endlessly as the range of the Trainer's fit; `micro_batches` make a step. Between two
/// blocks it runs the peer.
template <class Batch, class Rounds>
class TakingTurns {
 public:
  class Iterator {
   public:
    using value_type = Batch;
    using difference_type = std::ptrdiff_t;
    Iterator() = default;
    explicit Iterator(TakingTurns& of) : of_(&of) {}

    const Batch& operator*() const { return *at_; }
    Iterator& operator++() {
      if (++at_ == end_) at_ = of_->batches_.data();
      if (++in_block_ == of_->block_) end_block();
      return *this;
    }
    void operator++(int) { ++*this; }
    bool operator==(std::default_sentinel_t) const { return left_ == 0; }

   private:
    void end_block() {
      of_->rounds_.take_turns();
      in_block_ = 0;
      --left_;
      of_->rounds_.begin();
    }

    TakingTurns* of_ = nullptr;
    const Batch* at_ = of_ ? of_->batches_.data() : nullptr;
    const Batch* end_ = of_ ? at_ + of_->batches_.size() : nullptr;
    std::int64_t in_block_ = 0;
    std::int64_t left_ = of_ ? of_->rounds_.plan().rounds + of_->rounds_.plan().warm_up_rounds : 0;
  };

  TakingTurns(const std::vector<Batch>& batches, std::int64_t micro_batches, Rounds& rounds)
      : batches_(batches), rounds_(rounds), block_(rounds.plan().steps * micro_batches) {}

  Iterator begin() {
    rounds_.begin();
    return Iterator(*this);
  }
  [[nodiscard]] std::default_sentinel_t end() const { return {}; }
  [[nodiscard]] std::size_t size() const {
    return static_cast<std::size_t>(block_ * (rounds_.plan().rounds + rounds_.plan().warm_up_rounds));
  }

 private:
  const std::vector<Batch>& batches_;
  Rounds& rounds_;
  std::int64_t block_;
};

}  // namespace bench
