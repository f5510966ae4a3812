// SPDX-License-Identifier: MIT
// OptimizerParts, the split of an update's parameters over ranks that shard an optimizer: which elements each
// rank owns, and this rank's elements as tensors that alias them. distributed/shard_layout.hpp assigns the
// elements.
#pragma once

#include <looptorch/optim/gradients.hpp>

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace looptorch {

/// Elements of one parameter that one rank has, counted in the order of memory.
struct PartRange {
  std::int64_t rank = 0, begin = 0, count = 0;
};

/// A split of parameters among ranks.
class OptimizerParts {
 public:
  /// One parameter.
  struct Split {
    at::Tensor whole;
    std::vector<PartRange> ranges;  ///< In the order of ranks; adjoining, and of all its elements.
    at::Tensor part = {};           ///< This rank's elements; undefined if it has none.
    PartRange mine = {};

    [[nodiscard]] bool is_cut() const { return ranges.size() > 1; }
  };

  OptimizerParts() = default;
  virtual ~OptimizerParts() = default;
  OptimizerParts(const OptimizerParts&) = delete;
  OptimizerParts& operator=(const OptimizerParts&) = delete;

  /// Assigns new parameters to ranks and forgets those that left. Others keep their ranks, also if their
  /// memory has moved.
  virtual void refresh(const std::vector<at::Tensor>& parameters) = 0;
  /// Returns how a parameter of the last refresh is split.
  [[nodiscard]] virtual const Split& of(const at::Tensor& parameter) const = 0;
  [[nodiscard]] virtual bool lists(const at::Tensor& parameter) const = 0;

  [[nodiscard]] const std::vector<std::unique_ptr<Split>>& all() const { return splits_; }
  /// Returns this rank's parts, in the order of their parameters.
  [[nodiscard]] const std::vector<at::Tensor>& tensors() const { return tensors_; }

  /// Returns a parameter's elements in the order of memory, as an alias; the tensor itself if it has gaps or
  /// another order.
  [[nodiscard]] static at::Tensor flat(const at::Tensor& tensor) {
    return tensor.is_contiguous() ? tensor.detach().view({-1}) : tensor.detach();
  }
  /// Returns the elements of a range of a tensor like the parameter; a copy if its memory has another order.
  [[nodiscard]] static at::Tensor slice(const at::Tensor& tensor, const Split& split,
                                        const PartRange& range) {
    if (!split.is_cut()) return tensor.detach();
    return tensor.detach().contiguous().view({-1}).narrow(0, range.begin, range.count);
  }

 protected:
  std::vector<std::unique_ptr<Split>> splits_;
  std::vector<at::Tensor> tensors_;
};

namespace detail {

/// Puts this rank's parts in the place of the parameters in an optimizer's groups while it lives. With
/// `lends_gradients` the parts have the parameters' gradients meanwhile.
class PartsInGroups {
 public:
  PartsInGroups(torch::optim::Optimizer& optimizer, OptimizerParts& parts, bool lends_gradients = false)
      : optimizer_(optimizer), parts_(parts), lends_(lends_gradients) {
    std::vector<at::Tensor> listed;
    for (const auto& group : optimizer.param_groups())
      listed.insert(listed.end(), group.params().begin(), group.params().end());
    parts.refresh(listed);
    if (lends_)
      for (const auto& split : parts.all())
        if (split->part.defined() && split->whole.grad().defined())
          split->part.mutable_grad() = OptimizerParts::slice(split->whole.grad(), *split, split->mine);
    for (auto& group : optimizer.param_groups()) {
      std::vector<at::Tensor> mine;
      for (const at::Tensor& parameter : group.params())
        if (const at::Tensor& part = parts.of(parameter).part; part.defined()) mine.push_back(part);
      wholes_.push_back(std::exchange(group.params(), std::move(mine)));
    }
  }
  ~PartsInGroups() {
    for (std::size_t i = 0; i < wholes_.size(); ++i)
      optimizer_.param_groups()[i].params() = std::move(wholes_[i]);
    if (lends_) drop_gradients(parts_.tensors());
  }
  PartsInGroups(const PartsInGroups&) = delete;
  PartsInGroups& operator=(const PartsInGroups&) = delete;

 private:
  torch::optim::Optimizer& optimizer_;
  OptimizerParts& parts_;
  bool lends_;
  std::vector<std::vector<at::Tensor>> wholes_;  // by group
};

}  // namespace detail
}  // namespace looptorch
