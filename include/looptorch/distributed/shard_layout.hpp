// SPDX-License-Identifier: MIT
// Divides the parameters of a sharded optimizer among the ranks, as evenly as possible. A parameter goes to
// one rank, or is cut into shards for several. Every rank computes the same division, without communication.
#pragma once

#include <looptorch/base/tensors/tensor_list.hpp>
#include <looptorch/optim/state/optimizer_shards.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

namespace looptorch::detail {

/// Assigns nearly the same number of elements to each rank.
class ShardLayout final : public OptimizerShards {
 public:
  /// Cuts lie at multiples of this many elements, so that a kernel's vectors see the same elements as without
  /// cuts.
  static constexpr std::int64_t kGrain = 256;

  /// `splits_` and `tensors_` of the base class are filled by `refresh`. With `by_element` large parameters
  /// are cut; otherwise each belongs to one rank.
  ShardLayout(std::int64_t rank, std::int64_t size, bool by_element)
      : rank_(rank), by_element_(by_element), loads_(static_cast<std::size_t>(size)) {}

  void refresh(const std::vector<at::Tensor>& parameters) override {
    at::NoGradGuard no_gradients;
    const std::vector<at::Tensor> now = distinct(parameters);
    if (!are_known(now)) take_over(now);
    for (const auto& split : splits_) follow(*split);
  }

  [[nodiscard]] const Split& of(const at::Tensor& parameter) const override {
    return *splits_[places_.at(parameter.unsafeGetTensorImpl())];
  }

 private:
  [[nodiscard]] bool are_known(const std::vector<at::Tensor>& now) const {
    return std::equal(now.begin(), now.end(), splits_.begin(), splits_.end(),
                      [](const at::Tensor& a, const std::unique_ptr<Split>& b) {
                        return a.is_same(b->whole) && a.numel() == size_of(*b);
                      });
  }

  void take_over(const std::vector<at::Tensor>& now) {
    std::unordered_map<const void*, std::unique_ptr<Split>> before;
    for (auto& split : splits_) before.emplace(split->whole.unsafeGetTensorImpl(), std::move(split));
    splits_.clear(), places_.clear();
    std::vector<Split*> added;
    for (const at::Tensor& parameter : now) {
      auto found = before.find(parameter.unsafeGetTensorImpl());
      const bool stays = found != before.end() && size_of(*found->second) == parameter.numel();
      places_.emplace(parameter.unsafeGetTensorImpl(), splits_.size());
      if (stays) {
        splits_.push_back(std::move(found->second));
        before.erase(found);
      } else {
        splits_.push_back(std::make_unique<Split>(Split{parameter, {}}));
        added.push_back(splits_.back().get());
      }
    }
    for (const auto& [key, left] : before)
      for (const ShardRange& range : left->ranges)
        loads_[static_cast<std::size_t>(range.rank)] -= range.count;
    // First come parameters that cannot be cut, largest first, each for the rank with the fewest elements.
    // Then parameters that can be cut even out the rest.
    std::stable_sort(added.begin(), added.end(), [this](const Split* a, const Split* b) {
      const bool cut_a = may_cut(a->whole), cut_b = may_cut(b->whole);
      if (cut_a != cut_b) return cut_b;
      return cut_a ? a->whole.numel() < b->whole.numel() : a->whole.numel() > b->whole.numel();
    });
    for (Split* split : added) assign(*split);
    tensors_.clear();
    for (const auto& split : splits_) {
      if (!split->shard.defined() && split->mine.count > 0) split->shard = alias_of(*split);
      if (split->shard.defined()) tensors_.push_back(split->shard);
    }
  }

  static std::int64_t size_of(const Split& split) {
    return split.ranges.back().begin + split.ranges.back().count;
  }
  [[nodiscard]] bool may_cut(const at::Tensor& parameter) const {
    return by_element_ && parameter.is_contiguous() && parameter.numel() >= 2 * kGrain;
  }

  void assign(Split& split) {
    const std::int64_t size = split.whole.numel();
    if (may_cut(split.whole))
      cut(split, size);
    else
      split.ranges.push_back({std::min_element(loads_.begin(), loads_.end()) - loads_.begin(), 0, size});
    for (const ShardRange& range : split.ranges) {
      loads_[static_cast<std::size_t>(range.rank)] += range.count;
      if (range.rank == rank_) split.mine = range;
    }
  }

  /// Fills each rank up to an equal part, in whole grains.
  void cut(Split& split, std::int64_t size) const {
    std::int64_t total = size;
    for (const std::int64_t load : loads_) total += load;
    std::int64_t done = 0, wanted = 0;
    std::vector<std::int64_t> lacks;
    for (const std::int64_t load : loads_)
      lacks.push_back(std::max<std::int64_t>(0, total / static_cast<std::int64_t>(loads_.size()) - load));
    std::int64_t all = 0;
    for (const std::int64_t lack : lacks) all += lack;
    for (std::size_t rank = 0; rank < lacks.size(); ++rank) {
      wanted += lacks[rank];
      const double end =
          all > 0 ? static_cast<double>(size) * static_cast<double>(wanted) / static_cast<double>(all) : 0.0;
      const std::int64_t grains = static_cast<std::int64_t>(end / kGrain + 0.5);
      const std::int64_t until = rank + 1 == lacks.size() ? size : std::min(size, grains * kGrain);
      if (until > done) split.ranges.push_back({static_cast<std::int64_t>(rank), done, until - done});
      done = std::max(done, until);
    }
  }

  static at::Tensor alias_of(const Split& split) {
    if (!split.is_cut()) return split.whole.detach();
    return flat(split.whole).narrow(0, split.mine.begin, split.mine.count);
  }
  /// Points the shard to the parameter's memory, which may have changed since the last refresh.
  static void follow(Split& split) {
    if (!split.shard.defined()) return;
    const std::int64_t offset = split.is_cut() ? split.mine.begin : 0;
    const bool same =
        split.shard.scalar_type() == split.whole.scalar_type() &&
        split.shard.device() == split.whole.device() && split.whole.has_storage() &&
        split.shard.const_data_ptr() == static_cast<const char*>(split.whole.const_data_ptr()) +
                                            offset * static_cast<std::int64_t>(split.whole.element_size());
    if (!same) split.shard.set_data(alias_of(split));
  }

  std::int64_t rank_;
  bool by_element_;
  std::vector<std::int64_t> loads_;  // elements by rank
  std::unordered_map<const void*, std::size_t> places_;
};

}  // namespace looptorch::detail
