// SPDX-License-Identifier: MIT
// Loads a dataset or stream in worker threads that make batches ahead of training, as PyTorch's DataLoader
// does. Batches lie in reused memory, which is page-locked once the process uses an accelerator. Use it
// whenever a sample costs more to make than to copy. Holds at most `workers + prefetch` batches besides the
// consumer's; idle threads sleep. Batches, order and errors are the same with any number of workers.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/state_dict.hpp>
#include <looptorch/data/datasets/dataset.hpp>
#include <looptorch/data/datasets/stream_dataset.hpp>
#include <looptorch/data/loader/loader_error.hpp>
#include <looptorch/data/loader/loader_log.hpp>
#include <looptorch/data/loader/loader_options.hpp>
#include <looptorch/data/loader/loader_position.hpp>
#include <looptorch/data/loader/loader_source.hpp>
#include <looptorch/data/loader/loader_stats.hpp>
#include <looptorch/data/loader/open_epoch.hpp>
#include <looptorch/data/loader/regrouping.hpp>
#include <looptorch/data/samplers/sampler.hpp>

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

namespace looptorch {

/// A range of the batches of one epoch of a dataset or stream; every `begin()` starts the next epoch.
///
///     PinnedPrefetchLoader loader(dataset, {.batch_size = 8, .workers = 4}, RandomSampler{.seed = 1});
///     for (auto& batch : loader) ...
///
/// A dataset given as an lvalue is held by reference and must outlive the loader and its iterators; a
/// temporary is moved in. One thread reads. The dataset and the collate are called from all workers at once,
/// each of which limits LibTorch's operators to one thread. Leaving the loop early, destroying the loader or
/// calling `begin()` again ends an open epoch: its workers stop after the current sample, and advancing its
/// iterator throws.
///
/// An exception of a sample or a collate becomes a `LoaderError` instead of its batch and ends the epoch.
/// `begin_epoch(error.epoch)` with `skip(error.batch + 1)` continues after it, and `on_error = OnError::skip`
/// skips such samples and lists them. A batch that has lost all its samples is skipped, and leaves a gap in
/// the numbers. A stream whose samples fail a thousand times in a row throws LoaderError. A batch that does
/// not arrive within `timeout` throws LoaderTimeout. If the reader waits for more than the share `starving`
/// of its time, the loader or ShowProgress warns once. Options out of range throw UsageError. A loader of a
/// stream has no `size()`, and `begin_epoch` only if the stream can begin again.
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
      "`order(std::int64_t epoch, std::int64_t size) const` returning std::vector<std::int64_t>, or `batches` "
      "with the same arguments returning looptorch::BatchPlan and `batch_count(std::int64_t size) const`; a stream "
      "takes a ShuffleBuffer, and a dataset does not, or a StreamShard; a collate callable comes fourth. See "
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

  /// Single-pass. The current batch may be moved from, and is dropped by `++`.
  class Iterator {
   public:
    using iterator_concept = std::input_iterator_tag;
    using value_type = Batch;
    using difference_type = std::ptrdiff_t;

    Iterator() = default;

    /// Returns the batch. Throws UsageError at the end.
    Batch& operator*() const { return epoch_->current(); }
    Batch* operator->() const { return &epoch_->current(); }

    /// Returns the dataset indices of the batch's samples, in its order; valid until the iterator is
    /// advanced. A stream's samples are numbered as they are read.
    std::span<const std::int64_t> indices() const { return epoch_->indices(); }

    /// Returns the batch's number in its epoch; a skipped batch leaves a gap.
    std::int64_t number() const { return epoch_->number(); }

    /// Returns the epoch of the batch.
    std::int64_t epoch() const { return epoch_->epoch(); }

    /// Waits for the next batch. Throws LoaderError instead of it, and UsageError if the loader has begun
    /// another epoch or is gone; until then the current batch stays.
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
      : source_(std::make_shared<Source>(std::forward<Set>(dataset), options, std::move(sampler),
                                         std::move(collate))) {}

  PinnedPrefetchLoader(PinnedPrefetchLoader&&) noexcept = default;
  PinnedPrefetchLoader& operator=(PinnedPrefetchLoader&&) = delete;
  ~PinnedPrefetchLoader() { end_open_epoch(); }

  /// Returns the number of batches in a whole epoch, including those that are skipped or fail.
  std::int64_t size() const requires(Source::kSized) { return source_->size(); }

  /// Makes the next `begin()` start this epoch. Without it epochs are numbered from 0 on.
  void begin_epoch(std::int64_t epoch) requires(Source::kRepeatable) {
    if (epoch < 0) throw UsageError(message("PinnedPrefetchLoader: epoch ", epoch, " is negative"));
    go_to({epoch, next_.batch}, nullptr);
  }

  /// Makes the next `begin()` skip the first `batches` of its epoch. A dataset's samples are not touched; a
  /// stream is read past them.
  void skip(std::int64_t batches) {
    if (batches < 0 || (Source::kSized && batches > batches_in_epoch()))
      throw UsageError(message("PinnedPrefetchLoader: cannot skip ", batches, " of ",
                               Source::kSized ? message(batches_in_epoch()) : "a stream's", " batches"));
    go_to({next_.epoch, batches}, nullptr);
  }

  /// The loader's position and what it will read next, so that `put_back` can restore both after an
  /// evaluation.
  class Place {
    friend PinnedPrefetchLoader;
    LoaderPosition next, position;
    std::shared_ptr<const StateDict> saved, stream;
  };
  [[nodiscard]] Place place() const {
    Place here;
    here.next = next_, here.saved = saved_;
    here.position = log_->position, here.stream = log_->stream;
    return here;
  }
  /// Ends an open epoch. The next `begin()` starts where it would have when `place` was taken.
  void put_back(const Place& place) {
    end_open_epoch();
    next_ = place.next, saved_ = place.saved;
    log_->position = place.position, log_->stream = place.stream;
  }

  /// Ends an open epoch, starts the next one and waits for its first batch.
  Iterator begin() {
    end_open_epoch();
    const auto destroy = [](Epoch* epoch) {
      if (!epoch->is_forked()) delete epoch;
    };
    std::shared_ptr<Epoch> epoch(new Epoch(source_, log_, next_, saved_), destroy);  // which may throw
    saved_ = nullptr;
    next_ = {next_.epoch + 1, 0};
    open_ = epoch;
    epoch->advance();
    return Iterator(std::move(epoch));
  }

  std::default_sentinel_t end() const { return {}; }

  /// Returns the reader's position, after the batches that it has processed. `begin_epoch` and `skip` move
  /// it too.
  [[nodiscard]] LoaderPosition position() const { return log_->position; }

  /// Returns the values that determine the batches: sizes, seed and sampler, but not workers and prefetch.
  [[nodiscard]] StateDict identity() const { return source_->identity(); }

  /// Returns the position, the identity and the state of a stream that can save its position.
  [[nodiscard]] StateDict state_dict() const {
    StateDict state;
    state.set("epoch", position().epoch);
    state.set("batch", position().batch);
    state.set("loader", position_identity());
    if (log_->stream) state.set("stream", *log_->stream);
    return state;
  }

  /// Ends an open epoch and makes the next `begin()` continue at the saved position. Throws StateError, and
  /// changes nothing, for the state of a loader with other batches; the message names both sides.
  void load_state_dict(const StateDict& state) {
    detail::require_same_loader(state.under("loader"), position_identity(), [&](const std::string& saved) {
      return regroupable().different_data(saved, "the state");
    });
    const LoaderPosition saved{state.get<std::int64_t>("epoch"), state.get<std::int64_t>("batch")};
    if (saved.epoch < 0 || saved.batch < 0 || (Source::kSized && saved.batch > batches_in_epoch()))
      throw StateError(message("a loader's state stands at batch ", saved.batch, " of epoch ", saved.epoch,
                               ", which does not exist"));
    const StateDict stream = state.under("stream");
    end_open_epoch();
    go_to(saved, stream.empty() ? nullptr : std::make_shared<const StateDict>(stream));
  }

  /// Returns the samples that `on_error = OnError::skip` has skipped.
  [[nodiscard]] const SkippedSamples& skipped() const { return log_->skipped; }

  /// Returns the times that the reader waited and the workers worked.
  [[nodiscard]] const LoaderStats& stats() const { return log_->stats; }

  /// Returns `stats()` for an owner that may outlive the loader.
  [[nodiscard]] std::shared_ptr<const LoaderStats> shared_stats() const { return {log_, &log_->stats}; }

  /// Returns the position, as snapshots of a fit read it.
  [[nodiscard]] std::shared_ptr<const detail::LoaderLog> shared_log() const { return log_; }

  [[nodiscard]] const LoaderOptions& options() const { return source_->options(); }

  /// Returns the source, through which a resumed fit reads the windows of a run with another batch size.
  [[nodiscard]] detail::Regroupable& regroupable() const { return *source_; }

 private:
  /// Returns the identity and, if positions count batches of another size, a description of these.
  [[nodiscard]] StateDict position_identity() const {
    StateDict identity = this->identity();
    if (const auto& how = source_->regrouping()) identity.set("read_as", detail::describe(how->read));
    return identity;
  }

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

  std::shared_ptr<Source> source_;
  std::shared_ptr<detail::LoaderLog> log_ = std::make_shared<detail::LoaderLog>();
  std::weak_ptr<Epoch> open_;
  LoaderPosition next_;
  std::shared_ptr<const StateDict> saved_;  // a stream's state at next_
};

/// The family of PinnedPrefetchLoader's policy forms: only one of them may be listed.
struct PrefetchFamily {};

/// The policy form, without a dataset: listed in a Trainer it makes `fit(dataset)` load with these options.
template <class Order, class Collate>
class PinnedPrefetchLoader<void, Order, Collate> {
 public:
  using family = PrefetchFamily;
  static constexpr bool makes_loader = true;

  PinnedPrefetchLoader(LoaderOptions options = {}, Order sampler = {}, Collate collate = {})
      : options_(options), sampler_(std::move(sampler)), collate_(std::move(collate)) {}

  const LoaderOptions& options() const { return options_; }

  /// Returns a loader over `dataset` with these options. As in the constructor, an lvalue is held by
  /// reference and a temporary is moved in.
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
