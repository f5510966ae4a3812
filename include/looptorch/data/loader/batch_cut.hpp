// SPDX-License-Identifier: MIT
// Plans an epoch's batches. A sampler either orders samples, which the loader cuts into batches, or makes the
// batches itself. The plan is checked before any sample is read.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/data/samplers/sampler.hpp>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace looptorch::detail {

/// How a loader cuts an order of samples; a BatchSampler uses neither member.
struct BatchCut {
  std::int64_t batch_size = 1;
  bool drop_last = false;

  /// Returns the number of batches, without overflow for any batch_size: "all in one batch" is often written
  /// as the largest number.
  std::int64_t count(std::int64_t samples) const {
    return samples / batch_size + (!drop_last && samples % batch_size != 0);
  }
};

template <class T>
concept AnySampler = Sampler<T> || BatchSampler<T>;

/// Throws UsageError for a setting that would have no effect.
template <AnySampler T>
void check_cut(const BatchCut& cut) {
  if constexpr (!BatchSampler<T>) {
    if (cut.batch_size < 1)
      throw UsageError(
          message("PinnedPrefetchLoader: batch_size is ", cut.batch_size, "; it must be at least 1"));
  } else if (cut.batch_size != 1 || cut.drop_last) {
    throw UsageError(
        "PinnedPrefetchLoader: batch_size and drop_last are the sampler's to decide; leave them as they are");
  }
}

/// Returns the number of batches in every epoch of a dataset of `size` samples.
template <AnySampler T>
std::int64_t planned_count(const T& sampler, std::int64_t size, const BatchCut& cut) {
  if constexpr (BatchSampler<T>)
    return sampler.batch_count(size);
  else
    return cut.count(sampled_count(sampler, size));
}

inline void check_indices(const std::vector<std::int64_t>& indices, std::int64_t size) {
  const auto wrong = std::ranges::find_if(indices, [size](auto index) { return index < 0 || index >= size; });
  if (wrong != indices.end())
    throw UsageError(message("PinnedPrefetchLoader: the sampler gave index ", *wrong, " for a dataset of ",
                             size, " samples"));
}

inline void check_batches(const BatchPlan& plan, std::int64_t announced) {
  if (plan.size() != announced)
    throw UsageError(message("PinnedPrefetchLoader: the sampler gave ", plan.size(),
                             " batches, announced were ", announced));
  std::int64_t begin = 0;
  for (const std::int64_t end : plan.ends)
    if (std::exchange(begin, end) >= end)
      throw UsageError("PinnedPrefetchLoader: the sampler gave an empty batch");
  if (begin != std::ssize(plan.indices))
    throw UsageError(message("PinnedPrefetchLoader: the sampler's batches end at ", begin, " of ",
                             plan.indices.size(), " indices"));
}

inline BatchPlan cut_order(std::vector<std::int64_t> order, const BatchCut& cut) {
  BatchPlan plan{.indices = std::move(order), .ends = {}};
  const std::int64_t samples = std::ssize(plan.indices);
  for (std::int64_t begin = 0, left = cut.count(samples); left > 0; --left)
    plan.ends.push_back(begin += std::min(cut.batch_size, samples - begin));
  return plan;
}

/// Returns the batches of one epoch. Throws UsageError if the sampler's result contradicts its count or the
/// dataset's size.
template <AnySampler T>
BatchPlan plan_epoch(const T& sampler, std::int64_t epoch, std::int64_t size, const BatchCut& cut) {
  BatchPlan plan;
  if constexpr (BatchSampler<T>) {
    plan = sampler.batches(epoch, size);
    check_batches(plan, sampler.batch_count(size));
  } else {
    std::vector<std::int64_t> order = sampler.order(epoch, size);
    if (const std::int64_t count = sampled_count(sampler, size); std::ssize(order) != count)
      throw UsageError(message("PinnedPrefetchLoader: the sampler gave ", order.size(),
                               " indices, announced were ", count,
                               ": an order of another length than the dataset's needs `count(size)`"));
    plan = cut_order(std::move(order), cut);
  }
  check_indices(plan.indices, size);
  return plan;
}

}  // namespace looptorch::detail
