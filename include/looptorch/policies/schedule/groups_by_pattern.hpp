// SPDX-License-Identifier: MIT
// Selects an optimizer's parameter groups by the names of their parameters, for ScheduleLr's option `groups`.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/text/first_few.hpp>
#include <looptorch/loop/run.hpp>
#include <looptorch/optim/parameter_groups.hpp>

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace looptorch::detail {

/// The parameter groups whose parameters all match one of the patterns; a tied weight needs one name to
/// match. Without patterns, all groups.
class GroupsByPattern {
 public:
  GroupsByPattern(const Run& run, std::vector<std::string> patterns) : patterns_(std::move(patterns)) {
    for (NamedParameter& parameter : run.named_parameters())
      names_.emplace(parameter.tensor.unsafeGetTensorImpl(), std::move(parameter));
  }

  /// Returns this update's groups. Throws UsageError for a group that matches in part.
  [[nodiscard]] std::vector<std::size_t> of(const UpdateView& view) const {
    std::vector<std::size_t> result;
    for (std::size_t group = 0; group < view.optimizer->param_groups().size(); ++group)
      if (patterns_.empty() || is_whole(view, group)) result.push_back(group);
    return result;
  }

  /// Returns the name of a group's first parameter, which identifies the group at any index; empty for a
  /// group without parameters.
  [[nodiscard]] std::string leader(const UpdateView& view, std::size_t group) const {
    const auto& parameters = view.optimizer->param_groups()[group].params();
    return parameters.empty() ? "" : name_of(view, parameters.front());
  }

  /// Throws UsageError for a pattern that matches no parameter of these updates.
  void require_matches(const std::vector<const UpdateView*>& updates) const {
    for (const std::string& pattern : patterns_) {
      std::string groups;
      bool matched = false;
      for (const UpdateView* view : updates)
        for (std::size_t group = 0; group < view->optimizer->param_groups().size(); ++group) {
          for (const at::Tensor& parameter : view->optimizer->param_groups()[group].params())
            matched |= matches(named(parameter), pattern);
          groups += message(groups.empty() ? "" : "; ", group, " of update '", view->name,
                            "': ", first_few(all_names(*view, group)));
        }
      if (!matched)
        throw UsageError(message("ScheduleLr's pattern '", pattern,
                                 "' matches no parameter group. The groups are ", groups));
    }
  }

 private:
  [[nodiscard]] bool is_whole(const UpdateView& view, std::size_t group) const {
    std::vector<std::string> inside, outside;
    for (const at::Tensor& parameter : view.optimizer->param_groups()[group].params())
      (matches(named(parameter), patterns_) ? inside : outside).push_back(name_of(view, parameter));
    if (inside.empty() || outside.empty()) return outside.empty() && !inside.empty();
    std::string patterns;
    for (const std::string& pattern : patterns_)
      patterns += message(patterns.empty() ? "'" : ", '", pattern, "'");
    throw UsageError(message("ScheduleLr's groups, ", patterns, ", match a part of group ", group,
                             " of update '", view.name, "', which has one learning rate: they match ",
                             first_few(inside), ", but not ", first_few(outside),
                             ". Make groups of their own, with parameter_groups of "
                             "looptorch/optim/parameter_groups.hpp, or give patterns of whole groups"));
  }

  /// Returns a parameter with its names; without names if it is outside the model.
  [[nodiscard]] NamedParameter named(const at::Tensor& parameter) const {
    const auto known = names_.find(parameter.unsafeGetTensorImpl());
    return known == names_.end() ? NamedParameter{parameter, {}} : known->second;
  }
  [[nodiscard]] std::string name_of(const UpdateView& view, const at::Tensor& parameter) const {
    const NamedParameter own = named(parameter);
    if (!own.names.empty()) return own.names.front();
    std::size_t number = 0;
    while (number < view.parameters.size() && !view.parameters[number].is_same(parameter)) ++number;
    return message("parameter ", number, " of update '", view.name, "' (outside of the model)");
  }
  [[nodiscard]] std::vector<std::string> all_names(const UpdateView& view, std::size_t group) const {
    std::vector<std::string> names;
    for (const at::Tensor& parameter : view.optimizer->param_groups()[group].params())
      names.push_back(name_of(view, parameter));
    return names;
  }

  std::vector<std::string> patterns_;
  std::unordered_map<const void*, NamedParameter> names_;
};

}  // namespace looptorch::detail
