// SPDX-License-Identifier: MIT
// Batches made ahead of time by worker threads, in memory that is used again, page-locked where CUDA is
// available: use it whenever a sample costs more than a copy. Holds at most `workers + prefetch` batches
// beside those in the consumer's hands; threads that have nothing to do sleep. Batches, order and errors are
// the same whatever the number of workers.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/state_dict.hpp>
#include <looptorch/data/dataset.hpp>
#include <looptorch/data/loader/loader_error.hpp>
#include <looptorch/data/loader/loader_log.hpp>
#include <looptorch/data/loader/loader_options.hpp>
#include <looptorch/data/loader/loader_position.hpp>
#include <looptorch/data/loader/loader_source.hpp>
#include <looptorch/data/loader/loader_stats.hpp>
#include <looptorch/data/loader/open_epoch.hpp>
#include <looptorch/data/sampler.hpp>
#include <looptorch/data/stream_dataset.hpp>

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>

namespace looptorch {

/// A range of the batches of one epoch of a dataset or stream; every `begin()` starts the next epoch.
///
///     PinnedPrefetchLoader loader(dataset, {.batch_size = 8, .workers = 4}, RandomSampler{.seed = 1});
///     for (auto& batch : loader) ...
///
/// A dataset given as an lvalue is held by reference and must outlive the loader and its iterators; a
/// temporary is moved in. One thread reads; the dataset and the collate are called from all workers at once,
/// each of which gives LibTorch's operators one thread. Leaving the loop early, destroying the loader or
/// beginning again ends an open epoch: its workers stop after the sample in hand, and its reader is told as
/// it goes on. What a sample or a collate throws arrives as `LoaderError` in place of its batch and ends the
/// epoch; `skip(error.batch + 1)` goes on behind it, and `on_error = OnError::skip` leaves such samples out
/// and keeps a list. Batches that have lost all their samples are passed over, but keep their number; a
/// stream of which a thousand samples in a row fail ends in a LoaderError. A batch that does not come within
/// `timeout` ends in LoaderTimeout. A
/// reader that waits for more than the share `starving` of its time is told so once, on stderr or by
/// ShowProgress. Options out of range throw UsageError. A loader of a stream has no `size()`, and
/// `begin_epoch` only if the stream can begin again.
template <class Set = void, class Order = SequentialSampler, class Collate = DefaultCollate>
class PinnedPrefetchLoader {
  using Choice = detail::LoaderSource<Set, Order, Collate>;
  static_assert(
      Choice::has_data,
      "looptorch: PinnedPrefetchLoader needs a dataset. Give the type `size() const` and `get(std::int64_t "
      "index) const` returning a sample by value, or, for a stream that is not const, `next()` returning "
      "std::optional of a sample. See docs/errors.md#dataset");
  static_assert(
      Choice::has_order,
      "looptorch: PinnedPrefetchLoader's third argument must be a sampler. Give the type "
      "`order(std::int64_t epoch, std::int64_t size) const` returning std::vector<std::int64_t>; a stream "
      "takes a ShuffleBuffer, and a dataset does not, or a StreamShare; a collate callable comes fourth. See "
      "docs/errors.md#sampler");
  static_assert(
      Choice::has_collate,
      "looptorch: PinnedPrefetchLoader cannot make a batch of these samples. Return tensors, numbers, strings, "
      "vectors or an aggregate of them from `get`, give the dataset `collate(std::span<Sample>) const`, or "
      "pass such a callable as the fourth argument. See docs/errors.md#collate");
  using Source = typename Choice::type;
  using Epoch = detail::OpenEpoch<Source>;

 public:
  using Batch = typename Source::Batch;

  /// Single-pass; the batch that it refers to may be moved from, and is dropped by `++`.
  class Iterator {
   public:
    using iterator_concept = std::input_iterator_tag;
    using value_type = Batch;
    using difference_type = std::ptrdiff_t;

    Iterator() = default;

    /// Throws UsageError at the end.
    Batch& operator*() const { return epoch_->current(); }
    Batch* operator->() const { return &epoch_->current(); }

    /// The dataset indices of the batch's samples, in its order; valid while the iterator stays where it is.
    /// A stream's samples are numbered as they are read.
    std::span<const std::int64_t> indices() const { return epoch_->indices(); }

    /// The batch's number in its epoch; one that was passed over leaves a gap.
    std::int64_t number() const { return epoch_->number(); }

    /// The epoch that the batch belongs to.
    std::int64_t epoch() const { return epoch_->epoch(); }

    /// Waits for the next batch. Throws LoaderError in its place, and UsageError where the loader has begun
    /// another epoch or is gone; until then the batch in hand stays.
    Iterator& operator++() {
      epoch_->advance();
      return *this;
    }
    void operator++(int) { ++*this; }

    friend bool operator==(const Iterator& it, std::default_sentinel_t) {
      return !it.epoch_ || it.epoch_->done();
    }

   private:
    friend PinnedPrefetchLoader;
    explicit Iterator(std::shared_ptr<Epoch> epoch) : epoch_(std::move(epoch)) {}

    std::shared_ptr<Epoch> epoch_;  // so that leaving a loop stops the workers
  };

  /// Samplers and collate callables are copied or moved in; see the class for the dataset.
  PinnedPrefetchLoader(std::type_identity_t<Set>&& dataset, LoaderOptions options = {}, Order sampler = {},
                       Collate collate = {})
      : source_(std::make_shared<const Source>(std::forward<Set>(dataset), options, std::move(sampler),
                                               std::move(collate))) {}

  PinnedPrefetchLoader(PinnedPrefetchLoader&&) noexcept = default;
  PinnedPrefetchLoader& operator=(PinnedPrefetchLoader&&) = delete;
  ~PinnedPrefetchLoader() { end_open_epoch(); }

  /// Batches in a whole epoch, whatever is skipped or cannot be had.
  std::int64_t size() const requires(Source::kSized) { return source_->size(); }

  /// The next `begin()` starts this epoch. Without it epochs follow each other from 0 on.
  void begin_epoch(std::int64_t epoch) requires(Source::kRepeatable) {
    if (epoch < 0) throw UsageError(message("PinnedPrefetchLoader: epoch ", epoch, " is negative"));
    go_to({epoch, next_.batch}, nullptr);
  }

  /// The next `begin()` leaves out the first `batches` of its epoch: of a dataset without touching their
  /// samples; a stream is read past them.
  void skip(std::int64_t batches) {
    if (batches < 0 || (Source::kSized && batches > batches_in_epoch()))
      throw UsageError(message("PinnedPrefetchLoader: cannot skip ", batches, " of ",
                               Source::kSized ? message(batches_in_epoch()) : "a stream's", " batches"));
    go_to({next_.epoch, batches}, nullptr);
  }

  /// Ends an open epoch, starts the next one and waits for its first batch.
  Iterator begin() {
    end_open_epoch();
    auto epoch = std::make_shared<Epoch>(source_, log_, next_, std::exchange(saved_, nullptr));
    next_ = {next_.epoch + 1, 0};
    open_ = epoch;
    epoch->advance();
    return Iterator(std::move(epoch));
  }

  std::default_sentinel_t end() const { return {}; }

  /// Where the reader stands: behind the batches that it has done with. That is also where `begin_epoch` and
  /// `skip` move to.
  [[nodiscard]] LoaderPosition position() const { return log_->position; }

  /// What decides which batches come: sizes, seed and sampler. Workers and prefetch are free to change.
  [[nodiscard]] StateDict identity() const { return source_->identity(); }

  /// The position, the identity and, of a stream that can tell where it stands there, its state.
  [[nodiscard]] StateDict state_dict() const {
    StateDict state;
    state.set("epoch", position().epoch);
    state.set("batch", position().batch);
    state.set("loader", identity());
    if (log_->stream) state.set("stream", *log_->stream);
    return state;
  }

  /// Ends an open epoch; the next `begin()` goes on at the saved position. Throws StateError, and leaves
  /// everything as it is, for the state of a loader with other batches: the message names both sides.
  void load_state_dict(const StateDict& state) {
    detail::require_same_loader(state.under("loader"), identity());
    const LoaderPosition saved{state.get<std::int64_t>("epoch"), state.get<std::int64_t>("batch")};
    if (saved.epoch < 0 || saved.batch < 0 || (Source::kSized && saved.batch > batches_in_epoch()))
      throw StateError(message("a loader's state stands at batch ", saved.batch, " of epoch ", saved.epoch,
                               ", which does not exist"));
    const StateDict stream = state.under("stream");
    end_open_epoch();
    go_to(saved, stream.empty() ? nullptr : std::make_shared<const StateDict>(stream));
  }

  /// What `on_error = OnError::skip` has left out.
  [[nodiscard]] const SkippedSamples& skipped() const { return log_->skipped; }

  /// How long batches were waited for, and what the workers did.
  [[nodiscard]] const LoaderStats& stats() const { return log_->stats; }

  /// The same for those who outlive the loader.
  [[nodiscard]] std::shared_ptr<const LoaderStats> shared_stats() const { return {log_, &log_->stats}; }

  [[nodiscard]] const LoaderOptions& options() const { return source_->options(); }

 private:
  void go_to(LoaderPosition next, std::shared_ptr<const StateDict> saved) {
    log_->position = next_ = next;
    log_->stream = saved_ = std::move(saved);
  }

  std::int64_t batches_in_epoch() const {
    if constexpr (Source::kSized)
      return source_->size();
    else
      return 0;
  }

  void end_open_epoch() noexcept {
    if (const auto epoch = open_.lock()) epoch->cancel();
  }

  std::shared_ptr<const Source> source_;
  std::shared_ptr<detail::LoaderLog> log_ = std::make_shared<detail::LoaderLog>();
  std::weak_ptr<Epoch> open_;
  LoaderPosition next_;
  std::shared_ptr<const StateDict> saved_;  // by a stream, for next_
};

/// What all policy forms of PinnedPrefetchLoader have in common: only one of them may be listed.
struct PrefetchFamily {};

/// The policy form, without a dataset: listed in a Trainer it makes `fit(dataset)` load with these options.
template <class Order, class Collate>
class PinnedPrefetchLoader<void, Order, Collate> {
 public:
  using family = PrefetchFamily;
  static constexpr bool is_policy = true;

  PinnedPrefetchLoader(LoaderOptions options = {}, Order sampler = {}, Collate collate = {})
      : options_(options), sampler_(std::move(sampler)), collate_(std::move(collate)) {}

  const LoaderOptions& options() const { return options_; }

  /// A loader over `dataset` with these options; as the constructor, it refers to an lvalue and takes in a
  /// temporary.
  template <class Set>
  auto make(Set&& dataset) const {
    return PinnedPrefetchLoader<detail::loader_held_t<Set>, Order, Collate>(std::forward<Set>(dataset),
                                                                            options_, sampler_, collate_);
  }

 private:
  LoaderOptions options_;
  Order sampler_;
  Collate collate_;
};

template <detail::NotLoaderOptions Set, class Order = SequentialSampler, class Collate = DefaultCollate>
PinnedPrefetchLoader(Set&&, LoaderOptions = {}, Order = {}, Collate = {})
    -> PinnedPrefetchLoader<detail::loader_held_t<Set>, Order, Collate>;

template <class Order = SequentialSampler, class Collate = DefaultCollate>
PinnedPrefetchLoader(LoaderOptions = {}, Order = {}, Collate = {})
    -> PinnedPrefetchLoader<void, Order, Collate>;

}  // namespace looptorch
