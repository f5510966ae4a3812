// SPDX-License-Identifier: MIT
// Gives each rank its share of the samples of another sampler. All ranks compute the same order without
// communication, and each takes every world_size-th sample, or every world_size-th batch if the sampler makes
// batches. With the option `block`, a rank takes several neighbouring samples or batches at a time.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/data/samplers/sampler.hpp>
#include <looptorch/data/samplers/sampler_identity.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace looptorch {

/// The treatment of samples or batches that do not divide evenly among the ranks.
enum class Uneven {
  keep,    ///< every one once: ranks may have fewer than others, or none; a Trainer handles that
  repeat,  ///< repeats the first ones until shards are equal, as torch.utils.data.DistributedSampler does
  drop,    ///< leaves out the last ones in this epoch, so that shards are equal
};

/// Options of `DistributedSampler`. The order of the fields is API; new ones come last.
struct DistributedSamplerOptions {
  std::int64_t rank = 0;
  std::int64_t world_size = 1;
  Uneven uneven = Uneven::keep;
  std::int64_t block = 1;  ///< Samples, or batches of a batch sampler, that a rank takes in a row.
};

/// Yields this rank's shard. Shards are disjoint except for repeats, and with `repeat` or `drop` of equal
/// size: a loop of your own, whose ranks must call each all-reduce equally often, needs one of these. Give
/// every rank the same inner sampler and seed. If the inner sampler decides batches, ranks take whole ones.
///
///     DistributedSampler sampler({.rank = rank, .world_size = 4}, RandomSampler{.seed = 1});
template <class Inner = RandomSampler>
class DistributedSampler {
  static_assert(
      Sampler<Inner> || BatchSampler<Inner>,
      "looptorch: DistributedSampler's second argument must be a sampler. Give the type "
      "`order(std::int64_t epoch, std::int64_t size) const` returning std::vector<std::int64_t>, or `batches` "
      "with the same arguments returning looptorch::BatchPlan and `batch_count(std::int64_t size) const`. See "
      "docs/errors.md#sampler");

 public:
  /// Throws UsageError for a rank outside [0, world_size), a block below 1, and blocks without Uneven::keep.
  explicit DistributedSampler(DistributedSamplerOptions options = {}, Inner inner = {})
      : options_(options), inner_(std::move(inner)) {
    if (options_.world_size < 1 || options_.rank < 0 || options_.rank >= options_.world_size)
      throw UsageError(
          message("DistributedSampler: rank ", options_.rank, " of world size ", options_.world_size));
    if (options_.block < 1 || options_.block > std::numeric_limits<std::int64_t>::max() / options_.world_size)
      throw UsageError(
          message("DistributedSampler: block of ", options_.block, " for world size ", options_.world_size));
    if (options_.block > 1 && options_.uneven != Uneven::keep)
      throw UsageError(message("DistributedSampler: blocks of ", options_.block,
                               " cannot be repeated or dropped: give uneven = Uneven::keep"));
  }

  std::vector<std::int64_t> order(std::int64_t epoch, std::int64_t size) const requires Sampler<Inner> {
    const std::vector<std::int64_t> all = inner_.order(epoch, size);
    std::vector<std::int64_t> mine;
    for (std::int64_t i = 0; i < shard_size(std::ssize(all)); ++i)
      mine.push_back(all[static_cast<std::size_t>(position_of(i, std::ssize(all)))]);
    return mine;
  }

  std::int64_t count(std::int64_t size) const requires Sampler<Inner> {
    return shard_size(detail::sampled_count(inner_, size));
  }

  BatchPlan batches(std::int64_t epoch, std::int64_t size) const requires BatchSampler<Inner> {
    const BatchPlan all = inner_.batches(epoch, size);
    BatchPlan mine;
    for (std::int64_t i = 0; i < shard_size(all.size()); ++i) mine.add(all.batch(position_of(i, all.size())));
    return mine;
  }

  std::int64_t batch_count(std::int64_t size) const requires BatchSampler<Inner> {
    return shard_size(inner_.batch_count(size));
  }

  std::int64_t batch_size() const requires ResizableSampler<Inner> { return inner_.batch_size(); }

  DistributedSampler with_batch_size(std::int64_t batch_size) const requires ResizableSampler<Inner> {
    return DistributedSampler(options_, inner_.with_batch_size(batch_size));
  }

  /// Returns the identity without the rank, since all ranks are at the same position. With blocks it names
  /// the block of all ranks together, and so is the same on any number of ranks that divides it. One process
  /// that takes single samples has the inner sampler's identity.
  std::string identity() const {
    if (options_.block * options_.world_size == 1) return detail::sampler_identity(inner_);
    if (options_.uneven == Uneven::keep)
      return message("DistributedSampler, blocks of ", options_.block * options_.world_size, " of ",
                     detail::sampler_identity(inner_));
    return message("DistributedSampler, world_size ", options_.world_size, ", uneven ",
                   options_.uneven == Uneven::drop ? "drop" : "repeat", " of ",
                   detail::sampler_identity(inner_));
  }

 private:
  std::int64_t shard_size(std::int64_t count) const {
    if (options_.uneven == Uneven::keep) {
      const std::int64_t of_all = options_.block * options_.world_size, rest = count % of_all;
      return count / of_all * options_.block +
             std::clamp<std::int64_t>(rest - options_.rank * options_.block, 0, options_.block);
    }
    const bool one_more = options_.uneven == Uneven::repeat && count % options_.world_size != 0;
    return count / options_.world_size + one_more;
  }

  /// Returns the position, in the order of all ranks, of this rank's i-th sample or batch.
  std::int64_t position_of(std::int64_t i, std::int64_t count) const {
    const std::int64_t block = i / options_.block * options_.world_size + options_.rank;
    return (block * options_.block + i % options_.block) % count;
  }

  DistributedSamplerOptions options_;
  Inner inner_;
};

DistributedSampler()->DistributedSampler<RandomSampler>;
DistributedSampler(DistributedSamplerOptions)->DistributedSampler<RandomSampler>;
template <class Inner>
DistributedSampler(DistributedSamplerOptions, Inner) -> DistributedSampler<Inner>;

}  // namespace looptorch
