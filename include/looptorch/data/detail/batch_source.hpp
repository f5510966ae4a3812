// SPDX-License-Identifier: MIT
// Makes one batch: samples in the sampler's order, collated, pinned; every failure named. What the loader's
// workers share; const, so that they need no lock.
#pragma once

#include <looptorch/data/batch.hpp>
#include <looptorch/data/dataset.hpp>
#include <looptorch/data/detail/batch_plan.hpp>
#include <looptorch/data/detail/what_of.hpp>
#include <looptorch/data/sampler.hpp>
#include <looptorch/error.hpp>

#include <ATen/Context.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <span>
#include <stop_token>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace looptorch {

/// Options of `PinnedPrefetchLoader`. The order of the fields is API; new ones come last.
struct LoaderOptions {
  std::int64_t batch_size = 1;
  std::int64_t workers =
      2;  ///< threads that decode and collate; 0: the consumer's own, with the same results
  std::int64_t prefetch = 2;  ///< finished batches that may wait beyond the one that each worker makes
  bool drop_last = false;     ///< leaves out a last batch that is smaller than batch_size
  bool pin = true;            ///< page-locked batches where CUDA is available, for asynchronous copies
  std::uint64_t seed = 0;     ///< of what samples draw: a SeededDataset's (seed, epoch, index)
};

/// What a dataset or a collate threw, with its place; the original exception is nested
/// (`std::rethrow_if_nested`).
struct LoaderError : Error {
  LoaderError(const std::string& what, std::int64_t in_epoch, std::int64_t in_batch, std::int64_t at_sample)
      : Error(what), epoch(in_epoch), batch(in_batch), sample(at_sample) {}
  std::int64_t epoch;
  std::int64_t batch;   ///< number of the batch in its epoch
  std::int64_t sample;  ///< index in the dataset; -1 where a whole batch failed
};

namespace detail {

/// One epoch's visit of the dataset.
struct EpochOrder {
  std::int64_t epoch;
  BatchPlan plan;
};

template <class T>
concept NotLoaderOptions = !std::is_same_v<std::remove_cvref_t<T>, LoaderOptions>;

/// Stands in after a failed check, so that its sentence is not followed by others; never defined.
struct RefusedBatchSource {
  using Batch = int;
  template <class... Arguments>
  explicit RefusedBatchSource(Arguments&&...);
  const LoaderOptions& options() const;
  std::int64_t size() const;
  EpochOrder order(std::int64_t epoch) const;
  std::span<const std::int64_t> indices_of(const EpochOrder& order, std::int64_t number) const;
  Batch make(const EpochOrder& order, std::int64_t number, const std::stop_token& stop) const;
};

template <class Set, class Order, class Collate>
class BatchSource {
 public:
  using Sample = sample_t<Set>;
  using Batch = std::remove_cvref_t<batch_t<std::remove_cvref_t<Set>, Collate>>;

  BatchSource(Set&& dataset, const LoaderOptions& options, Order sampler, Collate collate)
      : dataset_(std::forward<Set>(dataset)),
        options_(options),
        sampler_(std::move(sampler)),
        collate_(std::move(collate)) {
    check_cut<Order>(cut());
    require(options_.workers >= 0, "workers", options_.workers, "0 (inline) or more");
    require(options_.prefetch >= 0, "prefetch", options_.prefetch, "0 or more");
  }

  const LoaderOptions& options() const { return options_; }

  /// Batches in an epoch.
  std::int64_t size() const { return planned_count(sampler_, dataset_size(), cut()); }

  EpochOrder order(std::int64_t epoch) const {
    return {epoch, plan_epoch(sampler_, epoch, dataset_size(), cut())};
  }

  /// The samples of batch `number`.
  std::span<const std::int64_t> indices_of(const EpochOrder& order, std::int64_t number) const {
    return order.plan.batch(number);
  }

  /// Batch `number` of the epoch; LoaderError says which sample failed. Gives up between samples when asked
  /// to stop.
  Batch make(const EpochOrder& order, std::int64_t number, const std::stop_token& stop) const {
    const c10::NoGradGuard no_grad;
    const std::span<const std::int64_t> indices = indices_of(order, number);
    std::vector<Sample> samples;
    samples.reserve(indices.size());
    for (const std::int64_t index : indices) {
      if (stop.stop_requested()) throw UsageError("PinnedPrefetchLoader: this epoch was cancelled");
      samples.push_back(get(order.epoch, number, index));
    }
    return collate(order.epoch, number, indices, samples);
  }

 private:
  static void require(bool holds, const char* name, std::int64_t value, const char* expected) {
    if (!holds)
      throw UsageError(message("PinnedPrefetchLoader: ", name, " is ", value, "; it must be ", expected));
  }

  std::int64_t dataset_size() const { return static_cast<std::int64_t>(dataset_.size()); }

  BatchCut cut() const { return {options_.batch_size, options_.drop_last}; }

  Sample get(std::int64_t epoch, std::int64_t batch, std::int64_t index) const {
    try {
      return get_sample(dataset_, index, sample_context(options_.seed, epoch, index));
    } catch (...) {
      std::throw_with_nested(LoaderError(message("sample ", index, " (epoch ", epoch, ", batch ", batch,
                                                 "): ", what_of(std::current_exception())),
                                         epoch, batch, index));
    }
  }

  Batch collate(std::int64_t epoch, std::int64_t batch, std::span<const std::int64_t> indices,
                std::vector<Sample>& samples) const {
    try {
      Batch made = collate_samples(dataset_, collate_, std::span<Sample>(samples));
      pin(made);
      return made;
    } catch (...) {
      std::throw_with_nested(
          LoaderError(message("batch ", batch, " of epoch ", epoch, " (samples ", list(indices),
                              ") could not be collated: ", what_of(std::current_exception())),
                      epoch, batch, -1));
    }
  }

  void pin(Batch& batch) const {
    if constexpr (BatchLike<Batch>) {
      if (!options_.pin || !at::hasCUDA()) return;
      for_each_tensor(batch, [](at::Tensor& tensor) {
        if (tensor.defined() && tensor.is_cpu() && tensor.layout() == at::kStrided)
          tensor = tensor.pin_memory();
      });
    }
  }

  static std::string list(std::span<const std::int64_t> indices) {
    constexpr std::size_t kShown = 8;
    std::string text;
    for (std::size_t i = 0; i < std::min(indices.size(), kShown); ++i)
      text += (i ? ", " : "") + std::to_string(indices[i]);
    return indices.size() > kShown ? text + ", ..." : text;
  }

  const Set dataset_;  // a reference where the loader was given an lvalue
  const LoaderOptions options_;
  const Order sampler_;
  const Collate collate_;
};

}  // namespace detail
}  // namespace looptorch
