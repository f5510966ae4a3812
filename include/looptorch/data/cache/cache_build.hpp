// SPDX-License-Identifier: MIT
// Computes the samples of a cache on several threads, ahead of training. The first sample that throws ends
// the build, unless CacheBuildOptions asks for a list of failures. Once a sample cannot be stored, as in a
// full cache, no further samples are computed.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/random.hpp>
#include <looptorch/base/what_of.hpp>
#include <looptorch/data/cache/cached_options.hpp>
#include <looptorch/data/loader/intra_op.hpp>

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace looptorch::detail {

/// The outcome of one sample.
enum class CacheStep { present, added, full };

class CacheBuild {
 public:
  /// Called from several threads at once, once for each index. With `room` false it only checks whether the
  /// sample is present.
  using Add = std::function<CacheStep(std::int64_t index, bool room)>;

  CacheBuild(const CacheBuildOptions& options, std::int64_t total, Add add)
      : options_(options), total_(total), add_(std::move(add)) {
    if (options_.workers < 1)
      throw UsageError(
          message("CachedDataset: build with ", options_.workers, " workers; it must be at least 1"));
    if (total_ > 0)  // processes that build at once begin at different samples
      first_ = static_cast<std::int64_t>(mix64(static_cast<std::uint64_t>(::getpid())) %
                                         static_cast<std::uint64_t>(total_));
  }

  CacheBuildResult run() {
    {
      const SingleIntraOpThread restored;  // undoes what the workers change for later threads
      std::vector<std::jthread> workers;
      const StopOnExit stop{this};  // before the workers are joined
      start(workers);
      report_until_done(std::ssize(workers));
    }
    if (error_) rethrow();
    std::ranges::sort(result_.failures, {}, &CacheFailure::index);
    return std::move(result_);
  }

 private:
  struct StopOnExit {
    CacheBuild* build;
    ~StopOnExit() {
      const std::lock_guard lock(build->mutex_);
      build->stopped_ = true;
    }
  };

  void start(std::vector<std::jthread>& workers) {
    for (std::int64_t i = 0; i < std::min(options_.workers, total_); ++i)
      workers.emplace_back([this] { work(); });
  }

  void work() {
    use_one_intra_op_thread();
    while (const auto index = claim()) record(attempt(*index));
    const std::lock_guard lock(mutex_);
    ++finished_;
    changed_.notify_one();
  }

  std::optional<std::int64_t> claim() {
    const std::lock_guard lock(mutex_);
    if (stopped_ || claimed_ == total_) return std::nullopt;
    return (first_ + claimed_++) % total_;
  }

  /// Returns the outcome, or nothing if the sample threw.
  std::optional<CacheStep> attempt(std::int64_t index) {
    try {
      return add_(index, has_room());
    } catch (...) {
      fail(index, std::current_exception());
      return std::nullopt;
    }
  }

  bool has_room() {
    const std::lock_guard lock(mutex_);
    return result_.skipped == 0;
  }

  void fail(std::int64_t index, std::exception_ptr error) {
    const std::lock_guard lock(mutex_);
    if (options_.skip_failures) {
      result_.failures.push_back({index, what_of(error)});
    } else if (!error_) {
      stopped_ = true;
      error_ = std::move(error);
      failed_ = index;
    }
  }

  void record(std::optional<CacheStep> step) {
    if (!step) return;
    const std::lock_guard lock(mutex_);
    result_.skipped += *step == CacheStep::full;
    result_.present += *step == CacheStep::present;
    result_.added += *step == CacheStep::added;
  }

  void report_until_done(std::int64_t workers) {
    const auto begun = std::chrono::steady_clock::now();
    std::unique_lock lock(mutex_);
    for (bool ended = false; !ended;) {
      ended = changed_.wait_for(lock, options_.interval, [&] { return finished_ == workers; });
      const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - begun;
      const CacheProgress progress{done(), total_, result_.added, spent.count()};
      lock.unlock();
      if (options_.progress) options_.progress(progress);
      lock.lock();
    }
  }

  std::int64_t done() const {
    return result_.present + result_.added + result_.skipped + std::ssize(result_.failures);
  }

  [[noreturn]] void rethrow() const {
    try {
      std::rethrow_exception(error_);
    } catch (...) {
      std::throw_with_nested(
          CacheBuildError(message("sample ", failed_, ": ", what_of(std::current_exception())), failed_));
    }
  }

  const CacheBuildOptions& options_;
  const std::int64_t total_;
  const Add add_;
  std::int64_t first_ = 0;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::int64_t claimed_ = 0, finished_ = 0;
  bool stopped_ = false;
  std::exception_ptr error_;
  std::int64_t failed_ = -1;
  CacheBuildResult result_;
};

}  // namespace looptorch::detail
