// SPDX-License-Identifier: MIT
// Defines what a sampler is: a type that returns the order in which an epoch visits a dataset. Two samplers
// are defined here, SequentialSampler and RandomSampler; the others have headers of their own. The order
// depends only on the sampler's settings, the epoch and the dataset's size, so a resumed run needs only the
// numbers of the epoch and of the batch. Takes 8 bytes per sample while an epoch is open; a permutation of a
// million samples takes about 10 ms.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/random.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <vector>

namespace looptorch {

/// A type with `order(epoch, size)`, which returns the indices, each in [0, size), that this epoch visits.
/// Optional `count(size)`: their number, if it is not `size`; it must not depend on the epoch. Optional
/// `identity()`: name and settings as a text, by which a saved position is recognised. Without it the
/// identity is the type's name and, for an aggregate, its numbers and strings.
template <class T>
concept Sampler = requires(const T& sampler, std::int64_t number) {
  { sampler.order(number, number) } -> std::same_as<std::vector<std::int64_t>>;
};

/// An epoch cut into batches.
struct BatchPlan {
  std::vector<std::int64_t> indices;  ///< samples of all batches in sequence
  std::vector<std::int64_t> ends;     ///< the end of each batch in `indices`, ascending

  /// Returns the number of batches in the epoch.
  std::int64_t size() const { return std::ssize(ends); }

  /// Returns the samples of batch `number`.
  std::span<const std::int64_t> batch(std::int64_t number) const {
    const std::int64_t begin = number == 0 ? 0 : ends[static_cast<std::size_t>(number - 1)];
    const std::int64_t end = ends[static_cast<std::size_t>(number)];
    return std::span(indices).subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin));
  }

  /// Appends a batch.
  void add(std::span<const std::int64_t> samples) {
    indices.insert(indices.end(), samples.begin(), samples.end());
    ends.push_back(std::ssize(indices));
  }
};

/// A sampler that decides which samples share a batch: `batches(epoch, size)`, and `batch_count(size)`, their
/// number, which must not depend on the epoch.
template <class T>
concept BatchSampler = requires(const T& sampler, std::int64_t number) {
  { sampler.batches(number, number) } -> std::same_as<BatchPlan>;
  { sampler.batch_count(number) } -> std::convertible_to<std::int64_t>;
};

/// A batch sampler that makes batches of any size: `batch_size()`, the largest number of samples in a batch
/// (0 for no limit), and `with_batch_size(n)`, which differs in that alone. A resumed run can cut its
/// batches.
template <class T>
concept ResizableSampler = BatchSampler<T> && requires(const T& sampler, std::int64_t number) {
  { sampler.batch_size() } -> std::same_as<std::int64_t>;
  { sampler.with_batch_size(number) } -> std::same_as<T>;
};

/// Yields 0, 1, 2, ... in every epoch.
struct SequentialSampler {
  std::string identity() const { return "SequentialSampler"; }

  std::vector<std::int64_t> order(std::int64_t /*epoch*/, std::int64_t size) const {
    std::vector<std::int64_t> indices(static_cast<std::size_t>(size));
    std::iota(indices.begin(), indices.end(), std::int64_t{0});
    return indices;
  }
};

/// Yields every sample once, in an order drawn anew for each epoch from (seed, epoch, size) alone: the same
/// on every platform.
struct RandomSampler {
  std::uint64_t seed = 0;

  std::string identity() const { return message("RandomSampler, seed ", seed); }

  std::vector<std::int64_t> order(std::int64_t epoch, std::int64_t size) const {
    std::vector<std::int64_t> indices = SequentialSampler{}.order(epoch, size);
    SplitMix64 random = detail::epoch_random(seed, epoch);
    shuffle(std::span(indices), random);
    return indices;
  }
};

namespace detail {

/// Returns the number of elements that a sampler yields for a dataset of `size` samples.
template <Sampler T>
std::int64_t sampled_count(const T& sampler, std::int64_t size) {
  if constexpr (requires {
                  { sampler.count(size) } -> std::convertible_to<std::int64_t>;
                })
    return sampler.count(size);
  else
    return size;
}

}  // namespace detail
}  // namespace looptorch
