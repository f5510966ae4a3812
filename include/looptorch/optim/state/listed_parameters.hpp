// SPDX-License-Identifier: MIT
// Remembers which parameters an optimizer's groups listed, to detect that a program has changed the groups:
// in LibTorch these are plain vectors. Each step of a FusedOptimizer compares the groups with the remembered
// lists, at the cost of one comparison of pointers per parameter.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <unordered_map>
#include <vector>

namespace looptorch::detail {

/// The parameters that an optimizer's groups listed at the last refresh. Holds them, so that a new parameter
/// cannot get the address of a removed one.
class ListedParameters {
 public:
  using Groups = std::vector<torch::optim::OptimizerParamGroup>;
  struct Position {
    std::size_t group, index;
  };

  /// True if the groups list the same parameters in the same positions as at the last refresh.
  [[nodiscard]] bool match(const Groups& groups) const {
    if (groups.size() != groups_.size()) return false;
    for (std::size_t i = 0; i < groups_.size(); ++i) {
      const std::vector<at::Tensor>&now = groups[i].params(), &then = groups_[i];
      if (now.size() != then.size()) return false;
      for (std::size_t j = 0; j < then.size(); ++j)
        if (!now[j].is_same(then[j])) return false;
    }
    return true;
  }

  void refresh(const Groups& groups) {
    groups_.resize(groups.size());
    positions_.clear();
    for (std::size_t i = 0; i < groups.size(); ++i) {
      groups_[i] = groups[i].params();
      for (std::size_t j = 0; j < groups_[i].size(); ++j)
        positions_.emplace(groups_[i][j].unsafeGetTensorImpl(), Position{i, j});
    }
  }

  /// Returns each group's index at the last refresh: that of the first former group with one of its
  /// parameters, else its present index if no other group has that. Empty for a new group.
  [[nodiscard]] std::vector<std::optional<std::size_t>> former(const Groups& groups) const {
    std::vector<std::optional<std::size_t>> former(groups.size());
    if (groups_.empty())  // never refreshed: a loaded state may know the groups
      for (std::size_t i = 0; i < groups.size(); ++i) former[i] = i;
    std::vector<bool> taken(groups_.size());
    for (std::size_t i = 0; i < groups.size(); ++i)
      for (const at::Tensor& parameter : groups[i].params()) {
        const auto position = find(parameter);
        if (!position || taken[position->group]) continue;
        former[i] = position->group, taken[position->group] = true;
        break;
      }
    for (std::size_t i = 0; i < std::min(groups.size(), taken.size()); ++i)
      if (!former[i] && !taken[i]) former[i] = i, taken[i] = true;
    return former;
  }

  /// Returns the first position of a parameter.
  [[nodiscard]] std::optional<Position> find(const at::Tensor& parameter) const {
    const auto found = positions_.find(parameter.unsafeGetTensorImpl());
    return found == positions_.end() ? std::nullopt : std::optional(found->second);
  }

 private:
  std::vector<std::vector<at::Tensor>> groups_;
  std::unordered_map<const void*, Position> positions_;  // the first of each parameter
};

}  // namespace looptorch::detail
