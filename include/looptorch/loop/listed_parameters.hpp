// SPDX-License-Identifier: MIT
// The parameters that an optimizer's groups listed when they were last looked at. LibTorch's groups are plain
// vectors that a program may change at any time, so an optimizer's groups are compared with this by identity
// once a step: one pointer a parameter.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

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
