// SPDX-License-Identifier: MIT
// The parameters that an optimizer's groups listed when they were last looked at. LibTorch's groups are plain
// vectors that a program may change at any time, so an optimizer's groups are compared with this by identity
// once a step: one pointer a parameter.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <unordered_map>
#include <vector>

namespace looptorch::detail {

/// Holds the parameters, so that a new one cannot take the address of one that left.
class ListedParameters {
 public:
  using Groups = std::vector<torch::optim::OptimizerParamGroup>;
  struct Place {
    std::size_t group, index;
  };

  /// True if the groups list the same parameters in the same places as when they were last looked at.
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

  void look_at(const Groups& groups) {
    groups_.resize(groups.size());
    for (std::size_t i = 0; i < groups.size(); ++i) groups_[i] = groups[i].params();
  }

  /// For each of the groups as they are now, the index that it had here: that of the first group which lists
  /// one of its parameters, else its own, unless another has that. Empty for a group that is new.
  [[nodiscard]] std::vector<std::optional<std::size_t>> former(const Groups& groups) const {
    const auto known = places();
    std::vector<std::optional<std::size_t>> former(groups.size());
    if (groups_.empty())  // never looked at: a state that was taken over may know the groups
      for (std::size_t i = 0; i < groups.size(); ++i) former[i] = i;
    std::vector<bool> taken(groups_.size());
    for (std::size_t i = 0; i < groups.size(); ++i)
      for (const at::Tensor& parameter : groups[i].params()) {
        const auto place = known.find(parameter.unsafeGetTensorImpl());
        if (place == known.end() || taken[place->second.group]) continue;
        former[i] = place->second.group, taken[place->second.group] = true;
        break;
      }
    for (std::size_t i = 0; i < std::min(groups.size(), taken.size()); ++i)
      if (!former[i] && !taken[i]) former[i] = i, taken[i] = true;
    return former;
  }

  [[nodiscard]] std::optional<Place> find(const at::Tensor& parameter) const {
    for (std::size_t i = 0; i < groups_.size(); ++i)
      for (std::size_t j = 0; j < groups_[i].size(); ++j)
        if (groups_[i][j].is_same(parameter)) return Place{i, j};
    return std::nullopt;
  }

  /// The first place of each parameter, by its address.
  [[nodiscard]] std::unordered_map<const void*, Place> places() const {
    std::unordered_map<const void*, Place> places;
    for (std::size_t i = 0; i < groups_.size(); ++i)
      for (std::size_t j = 0; j < groups_[i].size(); ++j)
        places.emplace(groups_[i][j].unsafeGetTensorImpl(), Place{i, j});
    return places;
  }

 private:
  std::vector<std::vector<at::Tensor>> groups_;
};

}  // namespace looptorch::detail
