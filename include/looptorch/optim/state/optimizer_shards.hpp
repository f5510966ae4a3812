// SPDX-License-Identifier: MIT
// OptimizerShards, the split of an update's parameters over ranks that shard an optimizer. It says which
// elements each rank owns, and has this rank's elements as tensors that share the parameters' memory.
// distributed/shard_layout.hpp assigns the elements.
#pragma once

#include <looptorch/optim/gradients/gradients.hpp>

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace looptorch {

/// Elements of one parameter that one rank has, counted in the order of memory.
struct ShardRange {
  std::int64_t rank = 0, begin = 0, count = 0;
};

/// A split of parameters among ranks.
class OptimizerShards {
 public:
  /// One parameter.
  struct Split {
    at::Tensor whole;
    std::vector<ShardRange> ranges;  ///< In the order of ranks; adjoining, and cover all elements.
    at::Tensor shard = {};           ///< This rank's elements; undefined if it has none.
    ShardRange mine = {};

    [[nodiscard]] bool is_cut() const { return ranges.size() > 1; }
  };

  OptimizerShards() = default;
  virtual ~OptimizerShards() = default;
  OptimizerShards(const OptimizerShards&) = delete;
  OptimizerShards& operator=(const OptimizerShards&) = delete;

  /// Assigns new parameters to ranks and forgets those that left. Others keep their ranks, also if their
  /// memory has moved.
  virtual void refresh(const std::vector<at::Tensor>& parameters) = 0;
  /// Returns how a parameter of the last refresh is split.
  [[nodiscard]] virtual const Split& of(const at::Tensor& parameter) const = 0;

  [[nodiscard]] const std::vector<std::unique_ptr<Split>>& all() const { return splits_; }
  /// Returns this rank's shards, in the order of their parameters.
  [[nodiscard]] const std::vector<at::Tensor>& tensors() const { return tensors_; }

  /// Returns a parameter's elements in the order of memory, as an alias; the tensor itself if it has gaps or
  /// another order.
  [[nodiscard]] static at::Tensor flat(const at::Tensor& tensor) {
    return tensor.is_contiguous() ? tensor.detach().view({-1}) : tensor.detach();
  }
  /// Returns the elements of a range of a tensor like the parameter; a copy if its memory has another order.
  [[nodiscard]] static at::Tensor slice(const at::Tensor& tensor, const Split& split,
                                        const ShardRange& range) {
    if (!split.is_cut()) return tensor.detach();
    return tensor.detach().contiguous().view({-1}).narrow(0, range.begin, range.count);
  }

 protected:
  std::vector<std::unique_ptr<Split>> splits_;
  std::vector<at::Tensor> tensors_;
};

namespace detail {

/// Puts this rank's shards in the place of the parameters in an optimizer's groups while it lives. With
/// `lends_gradients` the shards have the parameters' gradients meanwhile.
class ShardsInGroups {
 public:
  ShardsInGroups(torch::optim::Optimizer& optimizer, OptimizerShards& shards, bool lends_gradients = false)
      : optimizer_(optimizer), shards_(shards), lends_(lends_gradients) {
    std::vector<at::Tensor> listed;
    for (const auto& group : optimizer.param_groups())
      listed.insert(listed.end(), group.params().begin(), group.params().end());
    shards.refresh(listed);
    if (lends_)
      for (const auto& split : shards.all())
        if (split->shard.defined() && split->whole.grad().defined())
          split->shard.mutable_grad() = OptimizerShards::slice(split->whole.grad(), *split, split->mine);
    for (auto& group : optimizer.param_groups()) {
      std::vector<at::Tensor> mine;
      for (const at::Tensor& parameter : group.params())
        if (const at::Tensor& shard = shards.of(parameter).shard; shard.defined()) mine.push_back(shard);
      wholes_.push_back(std::exchange(group.params(), std::move(mine)));
    }
  }
  ~ShardsInGroups() {
    for (std::size_t i = 0; i < wholes_.size(); ++i)
      optimizer_.param_groups()[i].params() = std::move(wholes_[i]);
    if (lends_) drop_gradients(shards_.tensors());
  }
  ShardsInGroups(const ShardsInGroups&) = delete;
  ShardsInGroups& operator=(const ShardsInGroups&) = delete;

 private:
  torch::optim::Optimizer& optimizer_;
  OptimizerShards& shards_;
  bool lends_;
  std::vector<std::vector<at::Tensor>> wholes_;  // by group
};

}  // namespace detail
}  // namespace looptorch
