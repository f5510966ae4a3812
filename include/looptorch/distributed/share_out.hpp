// SPDX-License-Identifier: MIT
// Assigns parameters to the ranks of a sharded optimizer, whole or cut, as evenly as possible. Every rank
// computes the same.
#pragma once

#include <looptorch/base/tensor_list.hpp>
#include <looptorch/optim/optimizer_parts.hpp>

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
class ShareOut final : public OptimizerParts {
 public:
  /// Cuts lie at multiples of this many elements, so that a kernel's vectors see the same elements as without
  /// cuts.
  static constexpr std::int64_t kGrain = 256;

  /// With `by_element` large parameters are cut; otherwise each belongs to one rank.
  ShareOut(std::int64_t rank, std::int64_t size, bool by_element)
      : rank_(rank), by_element_(by_element), loads_(static_cast<std::size_t>(size)) {}

  void refresh(const std::vector<at::Tensor>& parameters) override {
    at::NoGradGuard no_gradients;
    const std::vector<at::Tensor> now = distinct(parameters);
    if (!are_known(now)) take_over(now);
    for (const auto& shared : shared_) follow(*shared);
  }

  [[nodiscard]] const Shared& of(const at::Tensor& parameter) const override {
    return *shared_[places_.at(parameter.unsafeGetTensorImpl())];
  }
  [[nodiscard]] bool lists(const at::Tensor& parameter) const override {
    return places_.count(parameter.unsafeGetTensorImpl()) > 0;
  }

 private:
  [[nodiscard]] bool are_known(const std::vector<at::Tensor>& now) const {
    return std::equal(now.begin(), now.end(), shared_.begin(), shared_.end(),
                      [](const at::Tensor& a, const std::unique_ptr<Shared>& b) {
                        return a.is_same(b->whole) &&
                               a.numel() == b->ranges.back().begin + b->ranges.back().count;
                      });
  }

  void take_over(const std::vector<at::Tensor>& now) {
    std::unordered_map<const void*, std::unique_ptr<Shared>> before;
    for (auto& shared : shared_) before.emplace(shared->whole.unsafeGetTensorImpl(), std::move(shared));
    shared_.clear(), places_.clear();
    std::vector<Shared*> added;
    for (const at::Tensor& parameter : now) {
      auto found = before.find(parameter.unsafeGetTensorImpl());
      const bool stays = found != before.end() && size_of(*found->second) == parameter.numel();
      places_.emplace(parameter.unsafeGetTensorImpl(), shared_.size());
      if (stays) {
        shared_.push_back(std::move(found->second));
        before.erase(found);
      } else {
        shared_.push_back(std::make_unique<Shared>(Shared{parameter, {}}));
        added.push_back(shared_.back().get());
      }
    }
    for (const auto& [key, left] : before)
      for (const PartRange& range : left->ranges) loads_[static_cast<std::size_t>(range.rank)] -= range.count;
    // Uncut parameters go first, largest first, each to the rank that has least. Then those that can be cut
    // even out the rest.
    std::stable_sort(added.begin(), added.end(), [this](const Shared* a, const Shared* b) {
      const bool cut_a = may_cut(a->whole), cut_b = may_cut(b->whole);
      if (cut_a != cut_b) return cut_b;
      return cut_a ? a->whole.numel() < b->whole.numel() : a->whole.numel() > b->whole.numel();
    });
    for (Shared* shared : added) share_out(*shared);
    tensors_.clear();
    for (const auto& shared : shared_) {
      if (!shared->part.defined() && shared->mine.count > 0) shared->part = alias_of(*shared);
      if (shared->part.defined()) tensors_.push_back(shared->part);
    }
  }

  static std::int64_t size_of(const Shared& shared) {
    return shared.ranges.back().begin + shared.ranges.back().count;
  }
  [[nodiscard]] bool may_cut(const at::Tensor& parameter) const {
    return by_element_ && parameter.is_contiguous() && parameter.numel() >= 2 * kGrain;
  }

  void share_out(Shared& shared) {
    const std::int64_t size = shared.whole.numel();
    if (may_cut(shared.whole))
      cut(shared, size);
    else
      shared.ranges.push_back({std::min_element(loads_.begin(), loads_.end()) - loads_.begin(), 0, size});
    for (const PartRange& range : shared.ranges) {
      loads_[static_cast<std::size_t>(range.rank)] += range.count;
      if (range.rank == rank_) shared.mine = range;
    }
  }

  /// Fills each rank up to an equal part, in whole grains.
  void cut(Shared& shared, std::int64_t size) const {
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
      if (until > done) shared.ranges.push_back({static_cast<std::int64_t>(rank), done, until - done});
      done = std::max(done, until);
    }
  }

  static at::Tensor alias_of(const Shared& shared) {
    if (!shared.is_cut()) return shared.whole.detach();
    return flat(shared.whole).narrow(0, shared.mine.begin, shared.mine.count);
  }
  /// Points the part to the parameter's memory, which may have changed since the last refresh.
  static void follow(Shared& shared) {
    if (!shared.part.defined()) return;
    const std::int64_t offset = shared.is_cut() ? shared.mine.begin : 0;
    const bool same =
        shared.part.scalar_type() == shared.whole.scalar_type() &&
        shared.part.device() == shared.whole.device() && shared.whole.has_storage() &&
        shared.part.const_data_ptr() == static_cast<const char*>(shared.whole.const_data_ptr()) +
                                            offset * static_cast<std::int64_t>(shared.whole.element_size());
    if (!same) shared.part.set_data(alias_of(shared));
  }

  std::int64_t rank_;
  bool by_element_;
  std::vector<std::int64_t> loads_;  // elements by rank
  std::unordered_map<const void*, std::size_t> places_;
};

}  // namespace looptorch::detail
