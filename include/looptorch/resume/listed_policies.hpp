// SPDX-License-Identifier: MIT
// Compares the policies recorded in a snapshot with those that a Trainer lists, and prepares the policies'
// saved states for loading; resume.hpp loads them if no difference is refused. A snapshot's StateDict has
// these two lists of names, where I counts the names:
//
//   listed.I              policies that are on and whose resume_rule is not `always`
//   listed.on_request.I   of these, the policies whose resume_rule is `on_request`
#pragma once

#include <looptorch/base/state_dict.hpp>
#include <looptorch/base/tensors/state_comparison.hpp>
#include <looptorch/loop/compose/declared_members.hpp>
#include <looptorch/loop/compose/policy_stack.hpp>
#include <looptorch/loop/compose/policy_states.hpp>
#include <looptorch/loop/resume_rule.hpp>
#include <looptorch/resume/differences.hpp>
#include <looptorch/resume/state_names.hpp>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace looptorch::detail {

/// True if listing P changes what is learnt. Accumulate is left out: a resume compares its N.
template <class P>
constexpr bool changes_numbers() {
  return state_dict_hook::valid<P>() || forward_scope_hook::valid<P>() || before_update_hook::valid<P>() ||
         (HasPhase<P> && phase_of<P>() < Phase::observe);
}

/// Returns P's declaration, or the default.
template <class P>
constexpr ResumeRule resume_rule_of() {
  if constexpr (HasResumeRule<P>)
    return P::resume_rule;
  else
    return changes_numbers<P>() ? ResumeRule::never : ResumeRule::always;
}

/// The policies that a resumed run must list as the snapshot's run did.
struct ListedPolicies {
  std::vector<std::string> names;                 ///< switched on, and not free to differ
  std::map<std::string, ResumeRule> resume_rule;  ///< of all policies, switched off ones included
};

template <class Stack>
[[nodiscard]] ListedPolicies list_policies(Stack& stack) {
  ListedPolicies listed;
  each_named(stack, [&](auto& slot, const std::string& name) {
    constexpr ResumeRule may = resume_rule_of<typename std::remove_reference_t<decltype(slot)>::Policy>();
    listed.resume_rule.emplace(name, may);
    if (may != ResumeRule::always && slot.enabled()) listed.names.push_back(name);
  });
  return listed;
}

inline void save(const ListedPolicies& listed, StateDict& state) {
  std::vector<std::string> on_request;
  for (const std::string& name : listed.names)
    if (listed.resume_rule.at(name) == ResumeRule::on_request) on_request.push_back(name);
  put_names(state, "listed", listed.names);
  put_names(state, "listed.on_request", on_request);
}

/// Returns how a policy may differ in a resume: the rule that it declares here or, if it is not listed here,
/// the one that the snapshot recorded. Snapshots of earlier versions have none.
[[nodiscard]] inline ResumeRule resume_rule(const std::string& name, const ListedPolicies& here,
                                            const StateDict& state) {
  if (const auto own = here.resume_rule.find(name); own != here.resume_rule.end()) return own->second;
  if (!state.contains("listed.on_request.size")) return ResumeRule::never;
  const auto on_request = names_under(state, "listed.on_request");
  return std::ranges::count(on_request, name) > 0 ? ResumeRule::on_request : ResumeRule::never;
}

/// Compares the policies of a snapshot's state with the stack's. Appends functions that load their states to
/// `commits`, and what differs to `differences`.
template <class Stack>
void stage_listed(Stack& stack, const StateDict& state, std::vector<Commit>& commits,
                  std::vector<Difference>& differences) {
  StagedPolicies policies = stage_policies(stack, state.under("run.policies"));
  std::move(policies.commits.begin(), policies.commits.end(), std::back_inserter(commits));
  const ListedPolicies listed = list_policies(stack);
  const auto saved_names = names_under(state, "listed");
  const std::set<std::string> here(listed.names.begin(), listed.names.end());
  const std::set<std::string> saved(saved_names.begin(), saved_names.end());
  const auto only_in = [&](const std::set<std::string>& in, const std::set<std::string>& other,
                           ResumeRule may) {
    std::vector<std::string> names;
    for (const std::string& name : in)
      if (!other.count(name) && resume_rule(name, listed, state) == may) names.push_back(name);
    return names;
  };
  for (const ResumeRule may : {ResumeRule::never, ResumeRule::on_request}) {
    const auto only_saved = only_in(saved, here, may), only_here = only_in(here, saved, may);
    if (const auto others = describe_others(only_saved, only_here, "the snapshot"); !others.empty())
      differences.push_back(
          mismatch(may, "the policies differ: " + others,
                   message("policies: ", listed_or_none(only_saved), " -> ", listed_or_none(only_here))));
  }
  for (const RefusedState& refused : policies.refused)
    if (const ResumeRule may = resume_rule(refused.name, listed, state); may != ResumeRule::always)
      differences.push_back(mismatch(may, refused.sentence(),
                                     refused.change.empty() ? "" : refused.name + ": " + refused.change));
}

}  // namespace looptorch::detail
