// SPDX-License-Identifier: MIT
// Checks at compile time the parts that a Trainer lists; each mistake gives an error of one sentence.
// CheckPolicy checks a policy alone, such as the signatures of its hooks. CheckConflicts, CheckClosures and
// CheckInBackward refuse combinations that do not work. CheckSnapshots, CheckWindows and CheckRanks check
// that the code that a policy needs is included (deferred_code.hpp). The Trainer's class body instantiates
// each check directly: a template in between would add a "required from" line to the error.
#pragma once

#include <looptorch/loop/compose/closure.hpp>
#include <looptorch/loop/compose/declared_members.hpp>
#include <looptorch/loop/compose/deferred_code.hpp>
#include <looptorch/loop/compose/measure.hpp>
#include <looptorch/loop/compose/order.hpp>
#include <looptorch/loop/compose/parts.hpp>
#include <looptorch/optim/interface/per_parameter_optimizer.hpp>
#include <looptorch/optim/state/optimizer_state.hpp>

#include <tuple>
#include <type_traits>

namespace looptorch::detail {

template <class P>
constexpr bool valid_exclusions() {
  if constexpr (requires { typename P::excludes; })
    return is_exclusion_list<typename P::excludes>;
  else
    return !names_excludes<P>();
}

template <class P>
constexpr bool valid_family() {
  return !names_family<P>() || requires { typename P::family; };
}

template <class P>
constexpr bool valid_evaluations() {
  if constexpr (requires { typename P::evaluates; })
    return is_evaluates<typename P::evaluates>;
  else
    return !names_evaluates<P>();
}

/// False for a class of which CheckPolicy says that it is no policy. True for a type with a hook, and for a
/// type whose mistake has a more exact sentence.
template <class P>
inline constexpr bool looks_like_policy = HasHook<P> || HasNearMiss<P> || names_makes_loader<P>() ||
                                          !std::is_class_v<P>;

/// Checks one listed policy, each rule with its own sentence. Instantiated in the Trainer's class body.
template <class P>
struct CheckPolicy {
  static_assert(
      std::is_class_v<P>,
      "looptorch: a policy is listed that is a pointer, a reference or no class. List a value, such as "
      "Accumulate<4>{}. See docs/errors.md#not-a-policy");
  static_assert(
      looks_like_policy<P>,
      "looptorch: a type is listed that has no hook, so it is no policy. Give it a hook such as `void "
      "on_window_end(WindowContext&) const`. See docs/errors.md#not-a-policy");
  static_assert(!names_phase<P>() || HasPhase<P>,
                "looptorch: a policy's `phase` would be ignored. Make it a public `static constexpr "
                "looptorch::Phase phase`. See docs/errors.md#phase");
  static_assert(!names_resume_rule<P>() || HasResumeRule<P>,
                "looptorch: a policy's `resume_rule` would be ignored. Make it a public `static constexpr "
                "looptorch::ResumeRule resume_rule`. See docs/errors.md#resume-rule");
  static_assert(!names_State<P>() || HasState<P>,
                "looptorch: a policy's State cannot be used. Make it public and default-constructible. See "
                "docs/errors.md#state");
  static_assert(
      valid_exclusions<P>(),
      "looptorch: a policy's `excludes` would be ignored. Make it a public ExclusionList<Excludes<...>, ...>. "
      "See docs/errors.md#excluded");
  static_assert((!names_runs_before<P>() || HasRunsBefore<P>)&&(!names_runs_after<P>() || HasRunsAfter<P>),
                "looptorch: a policy's `runs_before` or `runs_after` would be ignored. Make it a public "
                "`using runs_before = looptorch::Before<...>` or `using runs_after = looptorch::After<...>`. "
                "See docs/errors.md#order");
  static_assert(valid_family<P>(),
                "looptorch: a policy's `family` would be ignored. Make it a public type. See "
                "docs/errors.md#one-of-a-family");
  static_assert(
      valid_evaluations<P>(),
      "looptorch: a policy's `evaluates` would be ignored. Make it a public Evaluates<Batches, Measure> of a "
      "range of batches, or a std::tuple of several. See docs/errors.md#evaluates");
#define LOOPTORCH_DETAIL_CHECK(hook, Argument, Result)                                                       \
  static_assert(!near_miss<hook##_hook, P>,                                                                  \
                "looptorch: " #hook " would never run. Make it one public `" #Result " " #hook "(" #Argument \
                ") const`, with `State&` added if the policy has a State. See "                              \
                "docs/errors.md#hook-signature");
  LOOPTORCH_DETAIL_HOOKS(LOOPTORCH_DETAIL_CHECK)
#undef LOOPTORCH_DETAIL_CHECK
#define LOOPTORCH_DETAIL_CHECK(capability, meaning)                       \
  static_assert(!names_##capability<P>() || declares_##capability<P>(),   \
                "looptorch: a policy's `" #capability                     \
                "` would be ignored. Make it a public `static constexpr " \
                "bool`: true for a policy that " meaning ". See docs/errors.md#capability");
  LOOPTORCH_DETAIL_CAPABILITIES(LOOPTORCH_DETAIL_CHECK)
#undef LOOPTORCH_DETAIL_CHECK
  static_assert(state_dict_hook::valid<P>() == load_state_dict_hook::valid<P>(),
                "looptorch: a policy has one of state_dict and load_state_dict. What is saved must be loaded "
                "again: give it both. See docs/errors.md#state-dict");
};
template <class Optimizer, class Objective>
struct CheckPolicy<Update<Optimizer, Objective>> {};

template <class Part>
inline constexpr bool is_saved = true;
template <class Optimizer, class Objective>
inline constexpr bool is_saved<Update<Optimizer, Objective>> = SavedOptimizer<Optimizer>;

/// Checks that optimizers can be saved if a policy saves them, and that the code which does so is included.
template <class... Parts>
struct CheckSnapshots {
  static constexpr bool wanted = (takes_snapshots<unwrapped_t<Parts>>() || ...);
  static constexpr bool listed = wanted && !lacks<wanted, SnapshotCode, CheckSnapshots>();
  static_assert(!wanted || listed,
                "looptorch: a listed policy takes snapshots, and needs their code. Include "
                "<looptorch/resume/snapshots.hpp> in its header. See docs/errors.md#snapshot-code");
  static_assert(
      !wanted || (is_saved<Parts> && ...),
      "looptorch: a snapshot cannot hold what this optimizer keeps. Hold it by its own type, or give "
      "it `state_dict(StateDict&) const` and `load_state_dict(const StateDict&)`. See "
      "docs/errors.md#snapshot-optimizer");
};

/// Checks that the code which reruns windows is included if a policy may rerun them.
template <class... Parts>
struct CheckWindows {
  static constexpr bool may_rerun = (may_rerun_hook::template valid<unwrapped_t<Parts>>() || ...);
  static_assert(!lacks<may_rerun, WindowCode, CheckWindows>(),
                "looptorch: a listed policy has may_rerun, and needs the code that reruns windows. Include "
                "<looptorch/resume/window_bundle.hpp> in its header. See docs/errors.md#window-code");
};

/// Checks that the code for several processes is included if a policy gives ranks.
template <class... Parts>
struct CheckRanks {
  static constexpr bool given = (ranks_hook::template valid<unwrapped_t<Parts>>() || ...);
  static_assert(!lacks<given, SeveralRanks, CheckRanks>(),
                "looptorch: a listed policy gives ranks, and needs the code by which they agree. Include "
                "<looptorch/ranks/several_ranks.hpp> in its header. See docs/errors.md#ranks-code");
};

/// Names two policies of one family in the compiler's note.
template <class A, class B>
struct Clash;
/// Names a policy, the one it excludes, the reason and the remedy in the compiler's note.
template <class A, class B, class Exclusion>
struct Excluded;

/// True if both are policies and listed without When: a conflict between them is known when compiling.
template <class A, class B>
inline constexpr bool both_always_on = !is_update<A> && !is_update<B> && !is_when<A> && !is_when<B>;

template <class A, class B>
using clash_t = std::conditional_t<both_always_on<A, B> && same_family<A, B>, Clash<A, B>, void>;
template <class A, class B>
using excluded_t = std::conditional_t<both_always_on<A, B> && !std::is_void_v<declared_exclusion_t<A, B>>,
                                      Excluded<A, B, declared_exclusion_t<A, B>>, void>;

/// The first two listed policies that clash, and the first that exclude each other; void if there are none.
template <class... Parts>
struct Conflicts {
  using clash = void;
  using exclusion = void;
};
template <class A, class... Later>
struct Conflicts<A, Later...> {
  using clash = typename FirstFound<clash_t<A, Later>..., typename Conflicts<Later...>::clash>::type;
  using exclusion = typename FirstFound<excluded_t<A, Later>..., excluded_t<Later, A>...,
                                        typename Conflicts<Later...>::exclusion>::type;
};

/// True for an optimizer that can update one parameter alone, during backward.
template <class Part>
inline constexpr bool updates_by_parameter = true;
template <class Optimizer, class Objective>
inline constexpr bool updates_by_parameter<Update<Optimizer, Objective>> =
    std::is_base_of_v<PerParameterOptimizer, Optimizer>;

/// Checks that no listed policy changes gradients that an optimizer's closure evaluates again.
template <class... Parts>
struct CheckClosures {
  static_assert(
      !(steps_by_closure<Parts> || ...) || !((!is_when<Parts> && acts_on_gradients<Parts>()) || ...),
      "looptorch: an optimizer that takes a closure, such as LBFGS, evaluates its gradients several "
      "times an update, and a listed policy scales or clips them once. Drop the policy, or train with "
      "another optimizer. See docs/errors.md#closure");
};

/// Checks that what is listed works with updates made during backward, which leave no gradients behind.
template <class... Parts>
struct CheckInBackward {
  static constexpr bool in_backward = (updates_in_backward<unwrapped_t<Parts>>() || ...);
  static_assert(!in_backward || (0 + ... + is_update<Parts>) <= 1,
                "looptorch: UpdateInBackward applies the gradients of one update, and several are listed. "
                "Drop the policy. See docs/errors.md#update-in-backward");
  static_assert(!in_backward || (updates_by_parameter<Parts> && ...),
                "looptorch: UpdateInBackward needs an optimizer that can update one parameter alone. Train "
                "with FusedAdamW, AdamW8bit or another of looptorch's. See "
                "docs/errors.md#update-in-backward");
  static constexpr bool excluded = !std::is_void_v<typename Conflicts<Parts...>::exclusion>;
  static_assert(!in_backward || excluded ||
                    !((!is_when<Parts> && acts_on_gradients<Parts>() && !updates_in_backward<Parts>()) ||
                      ...),
                "looptorch: UpdateInBackward leaves no gradients to a listed policy that scales or clips "
                "them. Drop one of the two. See docs/errors.md#update-in-backward");
};

/// Checks listed policies against each other. Those under When are checked when fit begins, by the sentences
/// of conflict_sentence (rules.hpp), which a static_assert cannot share.
template <class... Parts>
struct CheckConflicts {
  static_assert(std::is_void_v<typename Conflicts<Parts...>::clash>,
                "looptorch: a policy is listed twice, or in two forms. Keep one of them, or switch them by "
                "When{flag, policy}. See docs/errors.md#one-of-a-family");
  static_assert(std::is_void_v<typename Conflicts<Parts...>::exclusion>,
                "looptorch: a listed policy excludes another one. Drop one of them, or do as the remedy "
                "beside this message says. See docs/errors.md#excluded");
  static constexpr int scales = (0 + ... + (!is_when<Parts> && loss_scale_hook::template valid<Parts>()));
  static_assert(
      scales <= 1 || !std::is_void_v<typename Conflicts<Parts...>::clash>,
      "looptorch: two listed policies give a loss scale, and losses are multiplied by one. Drop one "
      "of them, or switch them by When{flag, policy}. See docs/errors.md#two-loss-scales");
  static_assert(!((is_when<Parts> && is_update<unwrapped_t<Parts>>) || ...),
                "looptorch: When switches policies, not updates. Give the update an option: "
                "Update{optimizer, objective, {.when = predicate}}. See docs/errors.md#when-update");
};

}  // namespace looptorch::detail
