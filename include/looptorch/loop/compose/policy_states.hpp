// SPDX-License-Identifier: MIT
// Saves the states of a Trainer's policies by name, and loads them. Each policy first loads into a new State.
// The new States replace the old ones only after all policies have loaded.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/state_dict.hpp>
#include <looptorch/base/tensors/state_comparison.hpp>
#include <looptorch/base/tensors/tensor_map.hpp>
#include <looptorch/base/text/type_name.hpp>
#include <looptorch/loop/compose/declared_members.hpp>
#include <looptorch/loop/compose/policy_stack.hpp>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace looptorch::detail {

/// Returns the name of P's state. For a template that may be listed several times, only the template's name:
/// its arguments, such as a lambda, change with any edit.
template <class P>
std::string policy_name() {
  constexpr std::string_view name = type_name<P>();
  return std::string(repeatable<P>() ? name.substr(0, name.find('<')) : name);
}

/// Calls `visit(slot, name)` for each policy in running order. Policies of the same name are numbered.
template <class Stack, class Visit>
void each_named(Stack& stack, Visit&& visit) {
  std::map<std::string, int> seen;
  stack.each([&](auto& slot) {
    std::string name = policy_name<typename std::remove_reference_t<decltype(slot)>::Policy>();
    if (const int number = ++seen[name]; number > 1) name += " #" + std::to_string(number);
    visit(slot, name);
  });
}

/// Calls `visit(slot, name)` for each policy that has a state to save.
template <class Stack, class Visit>
void each_saving(Stack& stack, Visit&& visit) {
  each_named(stack, [&](auto& slot, const std::string& name) {
    if constexpr (state_dict_hook::valid<typename std::remove_reference_t<decltype(slot)>::Policy>())
      visit(slot, name);
  });
}

/// Returns the weights' averages by name, from the policy that keeps them; empty without such a policy.
template <class Stack>
[[nodiscard]] TensorMap weight_averages(Stack& stack) {
  TensorMap averages;
  stack.template run<averaged_weights_hook>(averages);
  return averages;
}

template <class Stack>
void save_policies(Stack& stack, StateDict& out) {
  std::int64_t size = 0;
  each_saving(stack, [&](auto& slot, const std::string& name) {
    StateDict entry, state;
    state_dict_hook::call(slot.policy, slot.state, state);
    entry.set("name", name);
    entry.set("state", state);
    out.set(std::to_string(size++), entry);
  });
  out.set("size", size);
}

/// Returns what `save_policies` wrote, by name.
inline std::map<std::string, StateDict> policy_states(const StateDict& in) {
  std::map<std::string, StateDict> states;
  for (std::int64_t i = in.get<std::int64_t>("size"); i-- > 0;) {
    const StateDict entry = in.under(std::to_string(i));
    states[entry.get<std::string>("name")] = entry.under("state");
  }
  return states;
}

/// Loads into a new State, which the Commit moves into `slot`. Throws what the policy throws.
template <class Slot>
[[nodiscard]] Commit stage_policy(Slot& slot, StateDict in) {
  using P = typename Slot::Policy;
  if constexpr (HasState<P> && std::is_move_assignable_v<state_t<P>>) {
    auto fresh = std::make_shared<state_t<P>>();
    load_state_dict_hook::call(slot.policy, *fresh, std::as_const(in));
    return [&slot, fresh] { slot.state = std::move(*fresh); };
  } else {
    return [&slot, in = std::move(in)] { load_state_dict_hook::call(slot.policy, slot.state, in); };
  }
}

/// A policy's error for a state that does not fit it.
struct RefusedState {
  std::string name, why;
  std::string change;  ///< of a SettingDiffers; empty for other errors

  [[nodiscard]] std::string sentence() const { return name + ": " + why; }
};

/// Policies' states, ready to commit, and what does not fit.
struct StagedPolicies {
  std::vector<Commit> commits;
  std::vector<std::string> only_saved, only_here;
  std::vector<RefusedState> refused;
};

template <class Stack>
[[nodiscard]] StagedPolicies stage_policies(Stack& stack, const StateDict& in) {
  StagedPolicies staged;
  std::map<std::string, StateDict> states = policy_states(in);
  each_saving(stack, [&](auto& slot, const std::string& name) {
    const auto found = states.find(name);
    if (found == states.end()) return staged.only_here.push_back(name);
    try {
      staged.commits.push_back(stage_policy(slot, found->second));
    } catch (const SettingDiffers& error) {
      staged.refused.push_back({name, error.what(), error.change});
    } catch (const StateError& error) {
      staged.refused.push_back({name, error.what(), {}});
    }
    states.erase(found);
  });
  for (const auto& [name, state] : states) staged.only_saved.push_back(name);
  return staged;
}

[[nodiscard]] inline std::string listed_or_none(const std::vector<std::string>& names) {
  return names.empty() ? "none" : joined(names, ", ");
}

/// Returns "Only in the state: A; only in the Trainer: none"; empty where both are the same.
[[nodiscard]] inline std::string describe_others(const std::vector<std::string>& only_saved,
                                                 const std::vector<std::string>& only_here,
                                                 const char* saved) {
  if (only_saved.empty() && only_here.empty()) return {};
  return message("only in ", saved, ": ", listed_or_none(only_saved),
                 "; only in the Trainer: ", listed_or_none(only_here));
}

/// Throws StateError that names policies found only in the state or only in the Trainer, or one policy's
/// objection to its state.
inline void require_all(const StagedPolicies& staged) {
  if (const auto others = describe_others(staged.only_saved, staged.only_here, "the state"); !others.empty())
    throw StateError("the state is of other policies than the Trainer lists: " + others);
  if (!staged.refused.empty()) throw StateError(staged.refused.front().sentence());
}

}  // namespace looptorch::detail
