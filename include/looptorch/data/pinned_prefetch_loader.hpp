// SPDX-License-Identifier: MIT
// Batches made ahead of time by worker threads, in page-locked memory where CUDA is available: use it
// whenever a sample costs more than a copy. Holds at most `workers + prefetch` batches beside the one in the
// consumer's hands; threads that have nothing to do sleep. Batches, order and errors are the same whatever
// the number of workers.
#pragma once

#include <looptorch/data/dataset.hpp>
#include <looptorch/data/detail/batch_source.hpp>
#include <looptorch/data/detail/open_epoch.hpp>
#include <looptorch/data/sampler.hpp>
#include <looptorch/error.hpp>

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>

namespace looptorch {

/// A range of the batches of one epoch of a dataset; every `begin()` starts the next epoch.
///
///     PinnedPrefetchLoader loader(dataset, {.batch_size = 8, .workers = 4}, RandomSampler{.seed = 1});
///     for (auto& batch : loader) ...
///
/// A dataset given as an lvalue is held by reference and must outlive the loader and its iterators; a
/// temporary is moved in. One thread reads; the dataset and the collate are called from all workers at once,
/// each of which gives LibTorch's operators one thread. Leaving the loop early, destroying the loader or
/// beginning again ends an open epoch: its workers stop after the sample in hand. What a sample or a collate
/// throws arrives as `LoaderError` in place of its batch and ends the epoch. `batch_size`, `workers` and
/// `prefetch` out of range throw UsageError.
template <class Set = void, class Order = SequentialSampler, class Collate = DefaultCollate>
class PinnedPrefetchLoader {
  static_assert(
      Dataset<std::remove_cvref_t<Set>>,
      "looptorch: PinnedPrefetchLoader needs a dataset. Give the type `size() const` and `get(std::int64_t "
      "index) const` returning a sample by value. See docs/errors.md#dataset");
  static_assert(
      detail::AnySampler<Order>,
      "looptorch: PinnedPrefetchLoader's third argument must be a sampler. Give the type "
      "`order(std::int64_t epoch, std::int64_t size) const` returning std::vector<std::int64_t>; a collate "
      "callable comes fourth. See docs/errors.md#sampler");
  static_assert(
      !Dataset<std::remove_cvref_t<Set>> || detail::Collatable<std::remove_cvref_t<Set>, Collate>,
      "looptorch: PinnedPrefetchLoader cannot make a batch of these samples. Return at::Tensor from `get`, "
      "give the dataset `collate(std::span<Sample>) const`, or pass such a callable as the fourth "
      "argument. See docs/errors.md#collate");

  static constexpr bool kAccepted =
      detail::AnySampler<Order> && detail::Collatable<std::remove_cvref_t<Set>, Collate>;
  using Source =
      std::conditional_t<kAccepted, detail::BatchSource<Set, Order, Collate>, detail::RefusedBatchSource>;
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

    /// Throws UsageError at the end, and where the loader has begun another epoch.
    Batch& operator*() const { return epoch_->current(); }
    Batch* operator->() const { return &epoch_->current(); }

    /// The dataset indices of the batch's samples, in its order; valid while the iterator stays where it is.
    std::span<const std::int64_t> indices() const { return epoch_->indices(); }

    /// Waits for the next batch. Throws LoaderError in its place, and UsageError where the loader has begun
    /// another epoch.
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

  /// Batches in a whole epoch, whatever is skipped.
  std::int64_t size() const { return source_->size(); }

  /// The next `begin()` starts this epoch. Without it epochs follow each other from 0 on.
  void begin_epoch(std::int64_t epoch) {
    if (epoch < 0) throw UsageError(detail::message("PinnedPrefetchLoader: epoch ", epoch, " is negative"));
    next_epoch_ = epoch;
  }

  /// The next `begin()` leaves out the first `batches` of its epoch, without touching their samples.
  void skip(std::int64_t batches) {
    if (batches < 0 || batches > size())
      throw UsageError(
          detail::message("PinnedPrefetchLoader: cannot skip ", batches, " of ", size(), " batches"));
    skip_ = batches;
  }

  /// Ends an open epoch, starts the next one and waits for its first batch.
  Iterator begin() {
    end_open_epoch();
    auto epoch = std::make_shared<Epoch>(source_, next_epoch_, skip_);
    ++next_epoch_;
    skip_ = 0;
    open_ = epoch;
    epoch->advance();
    return Iterator(std::move(epoch));
  }

  std::default_sentinel_t end() const { return {}; }

 private:
  void end_open_epoch() noexcept {
    if (const auto epoch = open_.lock()) epoch->cancel();
  }

  std::shared_ptr<const Source> source_;
  std::weak_ptr<Epoch> open_;
  std::int64_t next_epoch_ = 0;
  std::int64_t skip_ = 0;
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
    return PinnedPrefetchLoader<detail::held_t<Set>, Order, Collate>(std::forward<Set>(dataset), options_,
                                                                     sampler_, collate_);
  }

 private:
  LoaderOptions options_;
  Order sampler_;
  Collate collate_;
};

template <detail::NotLoaderOptions Set, class Order = SequentialSampler, class Collate = DefaultCollate>
PinnedPrefetchLoader(Set&&, LoaderOptions = {}, Order = {}, Collate = {})
    -> PinnedPrefetchLoader<detail::held_t<Set>, Order, Collate>;

template <class Order = SequentialSampler, class Collate = DefaultCollate>
PinnedPrefetchLoader(LoaderOptions = {}, Order = {}, Collate = {})
    -> PinnedPrefetchLoader<void, Order, Collate>;

}  // namespace looptorch
