// SPDX-License-Identifier: MIT
// Processes many items on several threads. Use it for work without LibTorch, such as making a corpus or
// checking its files; training data go through PinnedPrefetchLoader instead. Costs an atomic addition an
// item.
#pragma once

#include <looptorch/base/error.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <iterator>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace looptorch {

namespace detail {

/// The items that threads take in turn, until one of them fails.
class ItemsInTurn {
 public:
  explicit ItemsInTurn(std::size_t count) : count_(count), failed_(count) {}

  /// Returns the next item's number; none after a failure.
  [[nodiscard]] std::optional<std::size_t> take() {
    if (stopped_) return std::nullopt;
    const std::size_t item = next_++;
    return item < count_ ? std::optional(item) : std::nullopt;
  }

  /// Calls `report` with the number of items that are done, for one thread at a time.
  template <class Report>
  void finish(const Report& report) {
    const std::lock_guard lock(mutex_);
    report(++done_);
  }

  /// Keeps the exception of the first item in order. Earlier items were all taken before, so the choice does
  /// not depend on the threads.
  void fail(std::size_t item, std::exception_ptr error) {
    stop();
    const std::lock_guard lock(mutex_);
    if (item >= failed_) return;
    failed_ = item;
    error_ = std::move(error);
  }

  void stop() { stopped_ = true; }

  void rethrow() const {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  std::size_t count_;
  std::atomic<std::size_t> next_{0};
  std::atomic<bool> stopped_{false};
  std::mutex mutex_;
  std::size_t done_ = 0;
  std::size_t failed_;
  std::exception_ptr error_;
};

}  // namespace detail

/// Calls `work(item)` for each item, on the calling thread and `threads - 1` others, and returns when all are
/// done. Items begin in their order. `report(done)` is called after each item with the number of finished
/// items: 1, 2, ... in order, never twice at a time.
///
/// If `work` throws, no further item begins, started items are finished, and the exception of the first
/// failed item in order is thrown, which does not depend on the number of threads. An exception of `report`
/// counts as its item's. Throws UsageError for fewer than one thread. `items` is any range with `[]`, such as
/// a vector; the threads share `work`.
template <class Items, class Work, class Report>
void parallel_for_each(Items&& items, std::int64_t threads, const Work& work, const Report& report) {
  if (threads < 1) throw UsageError(message("parallel_for_each: ", threads, " threads can do nothing"));
  const auto count = static_cast<std::size_t>(std::size(items));
  detail::ItemsInTurn turns(count);
  const auto run = [&] {
    while (const auto item = turns.take()) {
      try {
        work(items[*item]);
        turns.finish(report);
      } catch (...) {
        turns.fail(*item, std::current_exception());
      }
    }
  };
  {
    std::vector<std::jthread> others;
    try {
      while (others.size() + 1 < std::min(static_cast<std::size_t>(threads), count)) others.emplace_back(run);
    } catch (...) {  // the system has no more threads
      turns.stop();
      throw;
    }
    run();
  }
  turns.rethrow();
}

/// Works through the items without a report.
template <class Items, class Work>
void parallel_for_each(Items&& items, std::int64_t threads, const Work& work) {
  parallel_for_each(std::forward<Items>(items), threads, work, [](std::size_t) {});
}

}  // namespace looptorch
