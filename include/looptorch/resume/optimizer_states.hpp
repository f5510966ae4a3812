// SPDX-License-Identifier: MIT
// Saves an update's optimizer as a state dict and loads it: the state of each parameter by its name in the
// model, the parameters of each group, and the groups' options and rates. Keys of the state dict:
//
//   type, groups, group.G.parameters.I (names), group.G.options.*, group.G.lr, group.G.given_lr,
//   state.NAME.* or, where an optimizer saves itself, whole.*
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/state_dict.hpp>
#include <looptorch/base/tensors/state_comparison.hpp>
#include <looptorch/base/tensors/tensor_map.hpp>
#include <looptorch/base/text/type_name.hpp>
#include <looptorch/base/what_of.hpp>
#include <looptorch/loop/parameter_names.hpp>
#include <looptorch/loop/phase.hpp>
#include <looptorch/loop/update.hpp>
#include <looptorch/optim/state/optimizer_state.hpp>
#include <looptorch/resume/differences.hpp>
#include <looptorch/resume/state_names.hpp>

#include <ATen/core/Tensor.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace looptorch::detail {

/// Returns "12 here, 10 in the snapshot; only here: a, b; only in the snapshot: c".
inline std::string compare_names(const std::vector<std::string>& here,
                                 const std::vector<std::string>& saved) {
  const auto only = [](const std::vector<std::string>& in, const std::vector<std::string>& other) {
    constexpr std::size_t kNamed = 8;
    const std::set<std::string> others(other.begin(), other.end());
    std::string text;
    std::size_t count = 0;
    for (const std::string& name : in)
      if (!others.count(name) && count++ < kNamed) text += (text.empty() ? "" : ", ") + name;
    return count > kNamed ? message(text, " and ", count - kNamed, " more") : text;
  };
  const std::string only_here = only(here, saved), only_saved = only(saved, here);
  return message(here.size(), " here, ", saved.size(), " in the snapshot",
                 only_here.empty() ? "" : "; only here: " + only_here,
                 only_saved.empty() ? "" : "; only in the snapshot: " + only_saved,
                 only_here.empty() && only_saved.empty() ? "; in another order" : "");
}

/// Returns an optimizer's groups: their parameters, options and rates.
template <class Optimizer>
[[nodiscard]] StateDict save_groups(const Optimizer& optimizer, const UpdateView& view,
                                    const ParameterNames& names) {
  StateDict out;
  out.set("name", view.name);
  out.set("type", type_of(optimizer));
  const auto& groups = optimizer.param_groups();
  out.set("groups", groups.size());
  for (std::size_t i = 0; i < groups.size(); ++i) {
    StateDict group;
    put_names(group, "parameters", names.of(groups[i]));
    group.set("options", group_options_of(optimizer, groups[i]));
    group.set("lr", rate_of(groups[i]));
    group.set("given_lr", view.given_rates[i]);
    out.set("group." + std::to_string(i), group);
  }
  return out;
}

template <class Optimizer>
[[nodiscard]] StateDict save_optimizer(const Optimizer& optimizer, const UpdateView& view,
                                       const ParameterNames& names) {
  StateDict out = save_groups(optimizer, view, names);
  if constexpr (SavesWhole<Optimizer>) {
    StateDict whole;
    optimizer.state_dict(whole);
    out.set("whole", whole);
  } else {
    for (const at::Tensor& parameter : view.parameters)
      out.set("state." + names.of(parameter), parameter_state(optimizer, parameter));
  }
  return out;
}

/// An optimizer's state, ready to commit, and what does not fit.
struct StagedOptimizer {
  std::vector<Commit> commits;
  std::vector<Difference> differences;
  bool keeps_rates = false;  ///< True: groups or given rates differ, so the optimizer keeps its rates.
};

/// NaN: the group's options have no learning rate.
inline bool same_rate(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

/// Compares options and parameters of the groups, and stages their rates.
template <class Optimizer>
void stage_groups(Optimizer& optimizer, const UpdateView& view, const ParameterNames& names,
                  const StateDict& in, StagedOptimizer& staged) {
  auto& groups = optimizer.param_groups();
  const std::string of = message("the optimizer of ", view.name, ": ");
  const auto differ = [&](auto&&... parts) {
    staged.differences.push_back(mismatch(ResumeField::optimizer, message(of, parts...)));
    staged.keeps_rates = true;
  };
  if (const auto saved = in.get<std::int64_t>("groups"); saved != static_cast<std::int64_t>(groups.size()))
    return differ(groups.size(), " parameter groups here, ", saved, " in the snapshot");
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const StateDict saved = in.under("group." + std::to_string(i));
    if (const auto theirs = names_under(saved, "parameters"), ours = names.of(groups[i]); ours != theirs)
      differ("parameters in group ", i, ": ", compare_names(ours, theirs));
    if (const double given = saved.get<double>("given_lr"); !same_rate(given, view.given_rates[i])) {
      const DifferentValue rate{message(i), message(view.given_rates[i]), message(given)};
      staged.differences.push_back(mismatch(ResumeField::rates, of + "the learning rate of group ", rate));
      staged.keeps_rates = true;
    }
    const StateDict options = saved.under("options");
    for (const DifferentValue& value : differing_values(group_options_of(optimizer, groups[i]), options))
      if (options.contains(value.key))  // earlier versions did not save all of them
        staged.differences.push_back(mismatch(ResumeField::options, message(of, "in group ", i, " "), value));
  }
  if (staged.keeps_rates) return;
  for (std::size_t i = 0; i < groups.size(); ++i)
    if (const double rate = in.get<double>(message("group.", i, ".lr")); !std::isnan(rate))
      staged.commits.push_back([&groups, i, rate] { groups[i].options().set_lr(rate); });
}

/// Returns the names of all parameters in an optimizer's saved groups.
[[nodiscard]] inline std::set<std::string> saved_parameters(const StateDict& in) {
  std::set<std::string> names;
  for (std::int64_t i = 0; i < in.get<std::int64_t>("groups"); ++i)
    for (std::string& name : names_under(in, message("group.", i, ".parameters")))
      names.insert(std::move(name));
  return names;
}

/// Returns the part of `key`, before a dot, that is one of `names`; empty if there is none.
[[nodiscard]] inline std::string owner_of(const std::string& key, const std::set<std::string>& names) {
  for (std::size_t dot = key.find('.'); dot != std::string::npos; dot = key.find('.', dot + 1))
    if (names.count(key.substr(0, dot))) return key.substr(0, dot);
  return {};
}

/// Returns the names whose saved state belongs to no parameter of the saved groups. A state that
/// `save_optimizer` wrote has none.
[[nodiscard]] inline std::set<std::string> states_outside_groups(const StateDict& in) {
  const std::set<std::string> names = saved_parameters(in);
  const StateDict states = in.under("state");
  std::set<std::string> outside;
  for (const auto& item : states.values())
    if (owner_of(item.first, names).empty()) outside.insert(item.first.substr(0, item.first.rfind('.')));
  return outside;
}

/// Returns why an optimizer that saves itself as a whole refuses a state; empty if it loads it. Leaves the
/// optimizer as it was: nothing may change before all of a snapshot has been checked.
template <class Optimizer>
[[nodiscard]] std::string why_unloadable(Optimizer& optimizer, const StateDict& whole) {
  StateDict now;
  optimizer.state_dict(now);
  const StateDict before = copied(now);
  std::string reason;
  try {
    optimizer.load_state_dict(copied(whole));
  } catch (const std::exception& error) {
    reason = first_line(error.what());
  }
  ignoring_errors([&] { optimizer.load_state_dict(before); });  // some refuse the state before a first step
  return reason;
}

/// Compares a saved optimizer with this one, and stages what fits. `states`, unless empty, stages the
/// parameters' states in place of doing so one by one. Throws StateError for an incomplete state.
template <class Optimizer>
[[nodiscard]] StagedOptimizer stage_optimizer(Optimizer& optimizer, const UpdateView& view,
                                              const ParameterNames& names, const StateDict& in,
                                              const std::function<std::vector<Commit>()>& states = {}) {
  StagedOptimizer staged;
  const std::string type = type_of(optimizer);
  if (const auto& saved = in.get<std::string>("type"); saved != type) {
    staged.keeps_rates = true;
    staged.differences.push_back(mismatch(
        ResumeField::optimizer,
        message("the optimizer of ", view.name, " is ", type, " here, ", saved, " in the snapshot")));
    return staged;
  }
  stage_groups(optimizer, view, names, in, staged);
  if constexpr (SavesWhole<Optimizer>) {
    const StateDict whole = in.under("whole");
    if (const std::string reason = why_unloadable(optimizer, whole); !reason.empty())
      staged.differences.push_back(
          mismatch(ResumeField::optimizer, message("the optimizer of ", view.name, ": ", reason)));
    else
      staged.commits.insert(staged.commits.begin(),
                            [&optimizer, whole] { optimizer.load_state_dict(whole); });
  } else if (states) {
    try {
      for (Commit& commit : states()) staged.commits.push_back(std::move(commit));
    } catch (const StateError& error) {
      staged.differences.push_back(
          mismatch(ResumeField::optimizer, message("the optimizer of ", view.name, ": ", error.what())));
    }
  } else {
    for (const auto& group : optimizer.param_groups())
      for (const at::Tensor& parameter : group.params()) {
        try {
          staged.commits.push_back(
              stage_parameter_state(optimizer, group, parameter, in.under("state." + names.of(parameter))));
        } catch (const StateError& error) {
          staged.differences.push_back(mismatch(
              ResumeField::optimizer,
              message("the optimizer of ", view.name, ": ", names.of(parameter), ": ", error.what())));
        }
      }
    for (const std::string& stranger : states_outside_groups(in))
      staged.differences.push_back(mismatch(
          ResumeField::optimizer, message("the optimizer of ", view.name, ": the snapshot has the state of ",
                                          stranger, ", which is in no parameter group, here or there")));
  }
  return staged;
}

}  // namespace looptorch::detail
