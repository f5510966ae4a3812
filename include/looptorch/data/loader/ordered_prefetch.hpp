// SPDX-License-Identifier: MIT
// Produces numbered values in threads ahead of a consumer, who receives them in order: the core of the
// loader. Holds at most `workers + prefetch` values, unfinished ones included. Uses one mutex and two
// condition variables, and does not poll. Free of torch, so that ThreadSanitizer sees all of it.
#pragma once

#include <looptorch/data/loader/turn_lock.hpp>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace looptorch::detail {

/// The sequence's waits and queue lengths, up to the value taken last.
struct PrefetchCounts {
  std::int64_t taken = 0;
  std::int64_t waited_for = 0;            ///< values that were not ready when requested
  std::int64_t queued = 0;                ///< finished values that were ready, summed over all requests
  std::vector<double> busy_seconds = {};  ///< time that each worker spent making values
};

/// Thrown for a value that did not arrive in the time that `next` was given.
struct PrefetchTimeout {
  std::int64_t number;
};

/// Makes the values 0 .. count - 1, each once, and yields them in this order with any number of workers.
///
/// The consumer's side (constructor, `next`, `cancel`, destructor) belongs to one thread. With 0 workers
/// `next` makes the value itself. An exception of `make` reaches the consumer once, instead of its value, and
/// ends the sequence: values before it are delivered, none after it.
template <class Value>
class OrderedPrefetch {
  static_assert(
      std::is_nothrow_move_constructible_v<Value>,
      "looptorch: a batch must be movable without exceptions. Give it a noexcept move constructor or hold "
      "the member that lacks one in a std::unique_ptr. See docs/errors.md#batch-move");

 public:
  /// Makes a value; called from several threads at once. Once stop is requested its result is dropped, so it
  /// may return or throw early.
  using Make = std::function<Value(std::int64_t number, const std::stop_token& stop)>;
  /// Called by each worker before its first value; the constructor waits for all of them. Must not throw.
  using OnStart = std::function<void()>;

  /// Makes `first` .. `count - 1`.
  OrderedPrefetch(std::int64_t first, std::int64_t count, std::int64_t workers, std::int64_t prefetch,
                  Make make, OnStart on_start = {})
      : make_(std::move(make)), on_start_(std::move(on_start)), claimed_(first), taken_(first), end_(count) {
    const auto values = std::max<std::int64_t>(count - first, 0), threads = std::min(workers, values);
    const auto ahead = std::min(std::max<std::int64_t>(prefetch, 0), values - threads);
    ring_.resize(static_cast<std::size_t>(threads + ahead));
    counts_.busy_seconds.resize(static_cast<std::size_t>(threads));
    start(threads);
  }

  OrderedPrefetch(const OrderedPrefetch&) = delete;
  OrderedPrefetch& operator=(const OrderedPrefetch&) = delete;
  ~OrderedPrefetch() { cancel(); }

  /// Waits for the next value and returns it; nothing at the end and after `cancel`. Rethrows what `make`
  /// threw. Throws PrefetchTimeout after waiting for `timeout`; 0 means no limit.
  std::optional<Value> next(std::chrono::duration<double> timeout = {}) {
    std::unique_lock lock(mutex_);
    if (stop_.stop_requested() || taken_ >= end_) return std::nullopt;
    return workers_.empty() ? make_inline() : take(lock, timeout);
  }

  /// Returns the counts. Call between two calls of `next`.
  PrefetchCounts counts() const {
    const std::lock_guard lock(mutex_);
    return counts_;
  }

  /// Stops the workers, waits until each has finished its value, and drops all values. Calling it again has
  /// no effect.
  void cancel() noexcept {
    ask_to_stop();
    workers_.clear();  // joins
    ring_.clear();
  }

  /// Asks the workers to stop without waiting for them, since one hangs. This object must then never be
  /// destroyed.
  void ask_to_stop() noexcept {
    {
      const std::lock_guard lock(mutex_);
      stop_.request_stop();
    }
    room_.notify_all();
  }

 private:
  using Clock = std::chrono::steady_clock;
  struct Entry {
    std::optional<Value> value{};
    std::exception_ptr error{};
    bool ready = false;

    /// Fills an empty entry; values need not be assignable.
    void fill(Entry&& made) noexcept {
      if (made.value) value.emplace(std::move(*made.value));
      error = std::move(made.error);
      ready = true;
    }

    void clear() {
      value.reset();
      error = nullptr;
      ready = false;
    }
  };

  void start(std::int64_t threads) {
    try {
      for (std::int64_t i = 0; i < threads; ++i)
        workers_.emplace_back([this, i] { work(static_cast<std::size_t>(i)); });
      std::unique_lock lock(mutex_);
      ready_.wait(lock, [this, threads] { return started_ == threads; });
    } catch (...) {  // the system has no more threads; those running must not outlive this
      cancel();
      throw;
    }
  }

  void work(std::size_t worker) {
    if (on_start_) on_start_();
    std::unique_lock lock(mutex_);
    ++started_;
    ready_.notify_one();
    while (const auto number = claim(lock)) {
      lock.unlock();
      turn_wait = {};
      const auto begin = Clock::now();
      Entry made = make_entry(*number);
      const std::chrono::duration<double> busy = Clock::now() - begin - turn_wait;
      lock.lock();
      counts_.busy_seconds[worker] += busy.count();
      deliver(*number, std::move(made));
    }
  }

  std::optional<std::int64_t> claim(std::unique_lock<std::mutex>& lock) {
    room_.wait(lock, [this] { return finished() || claimed_ - taken_ < capacity(); });
    if (finished()) return std::nullopt;
    return claimed_++;
  }

  Entry make_entry(std::int64_t number) noexcept {
    Entry entry{.ready = true};
    try {
      entry.value.emplace(make_(number, stop_.get_token()));
    } catch (...) {
      entry.error = std::current_exception();
    }
    return entry;
  }

  void deliver(std::int64_t number, Entry&& made) {
    if (stop_.stop_requested()) return;
    if (made.error) close_at(number + 1);
    entry_of(number).fill(std::move(made));
    ++waiting_;
    if (number == taken_) ready_.notify_one();
  }

  std::optional<Value> take(std::unique_lock<std::mutex>& lock, std::chrono::duration<double> timeout) {
    Entry& entry = entry_of(taken_);
    counts_.queued += waiting_;
    counts_.waited_for += !entry.ready;
    const auto is_ready = [&entry] { return entry.ready; };
    constexpr std::chrono::duration<double> kYear{3e7};  // longer times overflow the clock's type
    if (timeout.count() <= 0 || timeout > kYear)
      ready_.wait(lock, is_ready);
    else if (!ready_.wait_for(lock, timeout, is_ready))
      throw PrefetchTimeout{taken_};
    Entry taken = std::move(entry);
    entry.clear();
    ++taken_;
    ++counts_.taken;
    --waiting_;
    lock.unlock();
    room_.notify_one();
    if (taken.error) std::rethrow_exception(taken.error);
    return std::move(taken.value);
  }

  std::optional<Value> make_inline() {
    const std::int64_t number = taken_++;
    ++counts_.taken;
    ++counts_.waited_for;
    try {
      return make_(number, stop_.get_token());
    } catch (...) {
      close_at(number + 1);
      throw;
    }
  }

  /// Ends the sequence before `end`: no value from there on is begun or delivered.
  void close_at(std::int64_t end) {
    end_ = std::min(end_, end);
    room_.notify_all();
  }

  bool finished() const { return stop_.stop_requested() || claimed_ >= end_; }
  std::int64_t capacity() const { return static_cast<std::int64_t>(ring_.size()); }
  Entry& entry_of(std::int64_t number) { return ring_[static_cast<std::size_t>(number) % ring_.size()]; }

  const Make make_;
  const OnStart on_start_;
  mutable std::mutex mutex_;  // guards everything below except workers_
  std::condition_variable room_;
  std::condition_variable ready_;
  std::stop_source stop_;
  std::int64_t started_ = 0;
  std::int64_t claimed_;  // the next number that a worker begins
  std::int64_t taken_;    // the next number that the consumer receives
  std::int64_t end_;
  std::int64_t waiting_ = 0;  // finished values in the ring
  PrefetchCounts counts_;
  std::vector<Entry> ring_;
  std::vector<std::jthread> workers_;
};

}  // namespace looptorch::detail
