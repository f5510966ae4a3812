// SPDX-License-Identifier: MIT
// Reads one epoch of a loader: holds its workers and the current batch. The loader's iterators own it, so
// that the workers stop when a loop over the loader is left.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/process/terminal.hpp>
#include <looptorch/base/state_dict.hpp>
#include <looptorch/data/batch/batch_memory_pool.hpp>
#include <looptorch/data/loader/data_bound.hpp>
#include <looptorch/data/loader/failures_in_a_row.hpp>
#include <looptorch/data/loader/intra_op.hpp>
#include <looptorch/data/loader/loader_log.hpp>
#include <looptorch/data/loader/loader_options.hpp>
#include <looptorch/data/loader/ordered_prefetch.hpp>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Generator.h>
#include <ATen/core/MT19937RNGEngine.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

namespace looptorch::detail {

/// Detects draws from the CPU's default generator since its construction: if several workers draw from it, a
/// sample gets different numbers in each run.
class GlobalRngCheck {
 public:
  GlobalRngCheck() : before_(state()) {}

  [[nodiscard]] bool any() const {
    const at::mt19937_data_pod now = state();
    return now.seed_ != before_.seed_ || now.left_ != before_.left_ || now.next_ != before_.next_ ||
           now.state_ != before_.state_;
  }

 private:
  static at::mt19937_data_pod state() {
    const at::Generator generator = at::detail::getDefaultCPUGenerator();
    auto* const cpu = at::check_generator<at::CPUGeneratorImpl>(generator);
    const std::lock_guard lock(cpu->mutex_);
    return cpu->engine().data();
  }

  const at::mt19937_data_pod before_;
};

/// An epoch that a PinnedPrefetchLoader is reading, made as a loop over the loader begins. For one reading
/// thread. Beginning another epoch cancels this one.
template <class Source>
class OpenEpoch : public std::enable_shared_from_this<OpenEpoch<Source>> {
 public:
  using Batch = typename Source::Batch;

  /// Begins at `begin`, where a stream resumes from `saved`, if given. The first `advance` waits for the
  /// batch there.
  OpenEpoch(std::shared_ptr<const Source> source, std::shared_ptr<LoaderLog> log, LoaderPosition begin,
            std::shared_ptr<const StateDict> saved)
      : source_(std::move(source)),
        log_(std::move(log)),
        begin_(begin),
        before_(log_->stats),
        visit_(source_->open(begin.epoch, begin.batch, saved.get())),
        number_(begin.batch - 1),
        stream_(std::move(saved)) {
    const LoaderOptions& options = source_->options();
    const SingleIntraOpThread restored;  // undoes what the workers change for later threads
    log_->position = begin;
    source_->pool().trim();
    if (options.workers > 0 && !log_->warned_of_draws) draws_.emplace();
    prefetch_.emplace(
        begin.batch, source_->end_of(*visit_), options.workers, options.prefetch,
        [this](std::int64_t number, const std::stop_token& stop) { return make(number, stop); },
        [] { use_one_intra_op_thread(); });
  }

  bool done() const { return !current_.has_value(); }

  /// True in a fork of the process, which has none of the workers: joining or destroying them would hang.
  bool is_forked() const { return source_->options().workers > 0 && ::getpid() != process_; }

  Batch& current() {
    require_current();
    return *current_->batch;
  }

  /// Returns the indices of the samples in `current()`.
  std::span<const std::int64_t> indices() {
    require_current();
    return source_->indices_of(*visit_, number_, *current_);
  }

  std::int64_t epoch() const { return begin_.epoch; }

  /// Returns the number of `current()` in its epoch.
  std::int64_t number() {
    require_current();
    return number_;
  }

  /// Waits for the next batch. Throws UsageError if another epoch was begun meanwhile, since this one would
  /// otherwise end early without notice.
  void advance() {
    if (cancelled_ || (!ended_ && is_forked())) throw_cancelled();
    if (ended_) return;
    const bool opens = opened_.has_value();
    const auto asked = opens ? *std::exchange(opened_, std::nullopt) : Clock::now();
    if (!done()) log_->stats.use_seconds += seconds(asked - handed_out_);
    current_.reset();
    take();
    warn_if_drawn();
    handed_out_ = Clock::now();
    log_->stats.wait_seconds += seconds(handed_out_ - asked);
    if (opens) log_->stats.opening_seconds += seconds(handed_out_ - asked);
    warn_if_starving();
    if (done()) end();
  }

  /// Stops the workers. The current batch stays until `advance`, which throws.
  void cancel() noexcept {
    cancelled_ |= !done();  // also when called again
    if (!hangs_ && !is_forked()) prefetch_->cancel();
  }

 private:
  using Clock = std::chrono::steady_clock;
  using Made = typename Source::Made;

  static double seconds(Clock::duration time) { return std::chrono::duration<double>(time).count(); }

  void require_current() const {
    if (done()) throw UsageError("PinnedPrefetchLoader: this iterator's epoch has ended");
  }

  [[noreturn]] void throw_cancelled() {
    current_.reset();
    throw UsageError(
        "PinnedPrefetchLoader: this epoch was ended while it was being read: the loader has begun another "
        "one, or is gone, or this process is a fork() without the workers; give each reader, such as "
        "Validate beside fit, a loader of its own");
  }

  /// Takes the next batch that has samples; none at the end.
  void take() {
    while (!ended_) {
      log_->position = {begin_.epoch, ++number_};
      log_->stream = std::exchange(stream_, nullptr);
      std::optional<Made> made = next();
      ended_ = !made || made->end;
      if (ended_) return;
      record_batch(*made);
      stream_ = std::move(made->stream);
      if (made->batch) {
        current_.emplace(std::move(*made));
        return;
      }
      give_up_on_endless_failures();
    }
  }

  std::optional<Made> next() {
    try {
      return prefetch_->next(std::chrono::duration<double>(source_->options().timeout));
    } catch (const PrefetchTimeout&) {
      ended_ = true;
      abandon_worker();
    } catch (...) {
      ended_ = true;
      throw;
    }
  }

  /// Throws LoaderTimeout. The hanging thread cannot be stopped from outside, so it and everything it may
  /// still use are never destroyed.
  [[noreturn]] void abandon_worker() {
    hangs_ = true;
    prefetch_->ask_to_stop();
    static auto& left = *new std::vector<std::shared_ptr<OpenEpoch>>;
    static auto& of_all_readers = *new std::mutex;
    {
      const std::lock_guard lock(of_all_readers);
      left.push_back(this->shared_from_this());
    }
    const std::int64_t sample = visit_->in_flight.of(number_);
    const std::string path = sample < 0 ? std::string() : source_->path(sample);
    throw LoaderTimeout(
        message("batch ", number_, " of epoch ", begin_.epoch, " did not come within ",
                source_->options().timeout, " s: its worker hangs ",
                sample < 0 ? message("outside of any sample, in a collate or a stream's next")
                           : message("at sample ", sample, path.empty() ? "" : " (" + path + ")")),
        begin_.epoch, number_, sample, path);
  }

  void give_up_on_endless_failures() {
    if (Source::kSized || !failures_.too_many()) return;
    ended_ = true;
    prefetch_->cancel();
    failures_.throw_error();
  }

  /// Adds a batch, or its skipped samples, to the log.
  void record_batch(Made& made) {
    made.batch ? failures_.clear() : failures_.add(made.skipped);
    if (made.batch) {
      ++log_->stats.batches;
      any_batch_ = true;
    } else if (!first_skipped_ && !made.skipped.empty()) {
      first_skipped_ = made.skipped.front();
    }
    log_->skipped.add(std::exchange(made.skipped, {}));
    log_->stats.skipped = log_->skipped.count;
    record_prefetch(prefetch_->counts());
    record_slots(source_->pool().counts());
  }

  /// Adds the counts of this epoch to those before it.
  void record_prefetch(const PrefetchCounts& counts) {
    LoaderStats& stats = log_->stats;
    stats.asked = before_.asked + counts.taken;
    stats.waited_for = before_.waited_for + counts.waited_for;
    stats.queued = before_.queued + counts.queued;
    stats.worker_seconds.resize(std::max(stats.worker_seconds.size(), counts.busy_seconds.size()));
    for (std::size_t i = 0; i < counts.busy_seconds.size(); ++i)
      stats.worker_seconds[i] =
          (i < before_.worker_seconds.size() ? before_.worker_seconds[i] : 0) + counts.busy_seconds[i];
  }

  void record_slots(const SlotCounts& counts) {
    LoaderStats& stats = log_->stats;
    stats.slots = counts.slots;
    stats.slot_bytes = counts.bytes;
    stats.slot_allocations = counts.allocations;
    stats.slot_reuses = counts.reuses;
  }

  /// Prints the warning once, unless a policy has taken over reporting.
  void warn_if_starving() const {
    const LoaderStats& stats = log_->stats;
    if (stats.warned_data_bound || !is_data_bound(stats, source_->options().starving)) return;
    stats.warned_data_bound = true;
    warn(data_bound_text(stats));
  }

  /// Warns if samples draw from the default generator. The reader waited while the first batch was made, so
  /// any draws were the workers'.
  void warn_if_drawn() {
    if (!draws_) return;
    const bool drawn = draws_->any();
    draws_.reset();
    if (!drawn || log_->warned_of_draws) return;
    log_->warned_of_draws = true;
    warn(
        "its samples draw from LibTorch's default random generator, and which of them gets which numbers "
        "differs from run to run. Draw from a generator of the sample's own seed, SampleContext::seed. See "
        "docs/loader.md#random-numbers");
  }

  void warn(const std::string& what) const {
    std::fputs(own_line(stderr, "looptorch: a loader of " + source_->description() + ": " + what).c_str(),
               stderr);
  }

  /// Ends the epoch. Throws LoaderError if every sample of it failed.
  void end() {
    prefetch_->cancel();
    log_->position = {begin_.epoch + 1, 0};
    log_->stream = nullptr;
    if (any_batch_ || !first_skipped_ || begin_.batch > 0) return;
    throw LoaderError(message("every sample of epoch ", begin_.epoch, " failed; the first, sample ",
                              first_skipped_->index, ": ", first_skipped_->message),
                      begin_.epoch, -1, first_skipped_->index, first_skipped_->path);
  }

  Made make(std::int64_t number, const std::stop_token& stop) const {
    if (source_->options().workers > 0) return source_->make(*visit_, number, stop);
    const SingleIntraOpThread as_in_a_worker;  // so that sums round in the same way
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    const c10::InferenceMode normal(false);
    return source_->make(*visit_, number, stop);
  }

  const std::shared_ptr<const Source> source_;
  const std::shared_ptr<LoaderLog> log_;
  const pid_t process_ = ::getpid();
  const LoaderPosition begin_;
  const LoaderStats before_;
  std::optional<Clock::time_point> opened_ = Clock::now();  // reset by the first batch
  const std::unique_ptr<typename Source::Visit> visit_;
  std::int64_t number_;  // of the current batch
  std::optional<Made> current_;
  bool ended_ = false;
  bool cancelled_ = false;
  bool any_batch_ = false;
  bool hangs_ = false;
  std::optional<SkippedSample> first_skipped_;
  FailuresInARow failures_;
  std::shared_ptr<const StateDict> stream_;  // position after the current batch, if any
  std::optional<GlobalRngCheck> draws_;      // set until the first batch
  Clock::time_point handed_out_;
  std::optional<OrderedPrefetch<Made>> prefetch_;  // last: its workers use the members above
};

}  // namespace looptorch::detail
