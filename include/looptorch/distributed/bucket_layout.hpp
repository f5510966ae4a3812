// SPDX-License-Identifier: MIT
// Lays out the gradients of a bucket in memory, one after the other. With a sharded optimizer they are sorted
// by rank, so that each rank's shard is contiguous: first the gradients of rank 0's shard of the parameters,
// then those of rank 1's shard, and so on.
#pragma once

#include <looptorch/optim/state/optimizer_shards.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace looptorch::detail {

/// Elements of one parameter in a bucket.
struct BucketSlice {
  ShardRange range;
  at::Tensor view;  ///< into the bucket; of the parameter's shape unless the parameter is cut
};

struct BucketMember {
  at::Tensor parameter;
  const OptimizerShards::Split* split = nullptr;  ///< null unless the optimizer is sharded
  std::vector<BucketSlice> slices = {};           ///< the parameter's, in order; one unless it is cut
  std::size_t bucket = 0;
  bool packed = false;
  bool has_gradient = false;  ///< when it was packed
  std::int64_t version = 0;   ///< of the gradient that was packed
};

struct GradientBucket {
  std::size_t first = 0, end = 0, filled = 0;  ///< members
  std::int64_t numbers = 0;
  at::Tensor flat;                       ///< the shards of all ranks
  std::vector<at::Tensor> by_rank = {};  ///< gradients, then the counts
  std::vector<at::Tensor> counts = {};   ///< for each member, the number of ranks with a gradient
};

/// Adds a slice; returns its end.
inline std::int64_t add_slice(const GradientBucket& bucket, BucketMember& member, const ShardRange& range,
                              std::int64_t at) {
  const at::Tensor flat = bucket.flat.narrow(0, at, range.count);
  const bool is_cut = range.count < member.parameter.numel();
  member.slices.push_back({range, is_cut ? flat : flat.view(member.parameter.sizes())});
  return at + range.count;
}

/// Allocates a bucket with known members.
inline void allocate(GradientBucket& bucket, std::vector<BucketMember>& members, std::size_t ranks) {
  const auto of = static_cast<std::int64_t>(bucket.end - bucket.first);
  bucket.flat = at::zeros({bucket.numbers + of * static_cast<std::int64_t>(ranks)},
                          members[bucket.first].parameter.options().requires_grad(false));
  std::int64_t at = 0;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const std::int64_t begin = at;
    for (std::size_t i = bucket.first; i < bucket.end; ++i) {
      BucketMember& member = members[i];
      const std::vector<ShardRange> whole{{0, 0, member.parameter.numel()}};
      for (const ShardRange& range : member.split ? member.split->ranges : whole)
        if (range.rank == static_cast<std::int64_t>(rank)) at = add_slice(bucket, member, range, at);
    }
    bucket.counts.push_back(bucket.flat.narrow(0, at, of));
    bucket.by_rank.push_back(bucket.flat.narrow(0, begin, at + of - begin));
    at += of;
  }
}

/// Returns a view of a slice's elements in a tensor of its parameter's shape.
inline at::Tensor place_of(const BucketMember& member, const at::Tensor& tensor, const BucketSlice& slice) {
  if (member.slices.size() == 1) return tensor.detach();
  return OptimizerShards::flat(tensor).narrow(0, slice.range.begin, slice.range.count);
}

}  // namespace looptorch::detail
