// SPDX-License-Identifier: MIT
// Freezes and unfreezes a set of parameters together, for Freeze and UnfreezeAt, and sets the learning rate
// of the parameter groups that consist of them. Throws if two policies would freeze or train the same
// parameter.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/loop/run.hpp>
#include <looptorch/optim/parameter_groups.hpp>

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <unordered_set>
#include <vector>

namespace looptorch::detail {

/// Claims the right to freeze or train a parameter. Throws UsageError if another policy has.
inline void claim_flag(Run& run, const NamedParameter& parameter, const char* owner) {
  run.claim(message("whether '", parameter.names.front(), "' is trained"), owner);
}

/// Parameters that are frozen and unfrozen together.
struct OwnedParameters {
  std::vector<at::Tensor> tensors;

  void set_trained(bool trained) {
    for (at::Tensor& tensor : tensors)
      if (tensor.is_floating_point() || tensor.is_complex()) tensor.set_requires_grad(trained);
  }

  /// Throws UsageError unless these parameters are whole parameter groups with a learning rate. `pattern`
  /// names them in the message.
  void require_groups(const Run& run, const std::string& pattern) const {
    const Ids all = ids(tensors);
    Ids untrained = all;
    for (std::size_t update = 0; update < run.updates().size(); ++update) {
      const UpdateView& view = run.updates()[update];
      for (std::size_t group = 0; group < view.full_rates.size(); ++group) {
        if (!is_whole(view, group, all, pattern)) continue;
        for (const void* id : ids(view.optimizer->param_groups()[group].params())) untrained.erase(id);
      }
    }
    if (!untrained.empty())
      throw UsageError(message("UnfreezeAt has a learning rate for '", pattern, "', but no optimizer trains ",
                               untrained.size(), " of those parameters"));
  }

  /// Sets the rate of the groups that consist of these parameters now; groups may leave or move within a fit.
  void set_full_rate(Run& run, double rate) const {
    const Ids all = ids(tensors);
    for (UpdateView& view : run.updates()) {
      auto& groups = view.optimizer->param_groups();
      for (std::size_t group = 0; group < std::min(groups.size(), view.full_rates.size()); ++group) {
        const Ids members = ids(groups[group].params());
        const bool whole = !members.empty() && std::all_of(members.begin(), members.end(),
                                                           [&](const void* id) { return all.count(id) > 0; });
        if (!whole || std::isnan(view.full_rates[group])) continue;
        view.full_rates[group] = rate;
        groups[group].options().set_lr(rate);
      }
    }
  }

 private:
  using Ids = std::unordered_set<const void*>;

  static Ids ids(const std::vector<at::Tensor>& tensors) {
    Ids result;
    for (const at::Tensor& tensor : tensors) result.insert(tensor.unsafeGetTensorImpl());
    return result;
  }

  /// True if the group consists of these parameters, false if it has none of them. Throws UsageError for a
  /// mixture.
  static bool is_whole(const UpdateView& view, std::size_t group, const Ids& all,
                       const std::string& pattern) {
    const Ids members = ids(view.optimizer->param_groups()[group].params());
    const auto inside =
        std::count_if(members.begin(), members.end(), [&](const void* id) { return all.count(id) > 0; });
    if (inside == 0) return false;
    if (static_cast<std::size_t>(inside) < members.size())
      throw UsageError(message("UnfreezeAt has a learning rate for '", pattern, "', but those are only ",
                               inside, " of ", members.size(), " parameters in group ", group, " of update '",
                               view.name,
                               "': make the optimizer from groups of their own, with parameter_groups of "
                               "looptorch/optim/parameter_groups.hpp"));
    if (std::isnan(view.full_rates[group]))
      throw UsageError(message("UnfreezeAt has a learning rate for '", pattern,
                               "', but the optimizer of update '", view.name, "' has none in its options"));
    return true;
  }
};

}  // namespace looptorch::detail
