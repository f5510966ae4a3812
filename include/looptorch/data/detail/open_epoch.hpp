// SPDX-License-Identifier: MIT
// An epoch while it is being read: its workers and the batch in the consumer's hands. Owned by the loader's
// iterators, so that leaving a loop stops the workers; the loader only knows how to cancel it.
#pragma once

#include <looptorch/data/detail/batch_source.hpp>
#include <looptorch/data/detail/intra_op.hpp>
#include <looptorch/data/detail/ordered_prefetch.hpp>
#include <looptorch/error.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <utility>

namespace looptorch::detail {

template <class Source>
class OpenEpoch {
 public:
  using Batch = typename Source::Batch;

  /// Begins after the first `skip` batches.
  OpenEpoch(std::shared_ptr<const Source> source, std::int64_t epoch, std::int64_t skip)
      : source_(std::move(source)), order_(source_->order(epoch)), number_(skip - 1) {
    const LoaderOptions& options = source_->options();
    const SingleIntraOpThread restored;  // what the workers set would leak into later threads
    prefetch_.emplace(
        skip, source_->size(), options.workers, options.prefetch,
        [this](std::int64_t number, const std::stop_token& stop) { return make(number, stop); },
        [] { use_one_intra_op_thread(); });
  }

  bool done() const { return !current_.has_value(); }

  Batch& current() {
    if (done())
      throw UsageError("PinnedPrefetchLoader: this iterator's epoch has ended, or another one was begun");
    return *current_;
  }

  /// Of the samples in `current()`.
  std::span<const std::int64_t> indices() const { return source_->indices_of(order_, number_); }

  /// Throws UsageError where another epoch was begun meanwhile: this one would end early, and nobody would
  /// notice.
  void advance() {
    if (cancelled_)
      throw UsageError(
          "PinnedPrefetchLoader: another epoch was begun while this one was being read; give each reader, "
          "such "
          "as Validate beside fit, a loader of its own");
    current_.reset();
    current_ = prefetch_->next();
    ++number_;
    if (done()) prefetch_->cancel();
  }

  void cancel() noexcept {
    cancelled_ = !done();
    prefetch_->cancel();
    current_.reset();
  }

 private:
  Batch make(std::int64_t number, const std::stop_token& stop) const {
    if (source_->options().workers > 0) return source_->make(order_, number, stop);
    const SingleIntraOpThread as_in_a_worker;  // so that sums round in the same way
    return source_->make(order_, number, stop);
  }

  const std::shared_ptr<const Source> source_;
  const EpochOrder order_;
  std::int64_t number_;  // of the current batch
  std::optional<Batch> current_;
  bool cancelled_ = false;
  std::optional<OrderedPrefetch<Batch>> prefetch_;  // last: its workers use the members above
};

}  // namespace looptorch::detail
