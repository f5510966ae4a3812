// SPDX-License-Identifier: MIT
// Finds a policy's hooks at compile time. A member that has a hook's name but another signature is an error,
// since it would never run. hook_table.hpp lists the hooks. declared_members.hpp finds what else a policy
// declares, such as capabilities.
#pragma once

#include <looptorch/base/state_dict.hpp>
#include <looptorch/loop/compose/hook_table.hpp>
#include <looptorch/loop/context.hpp>
#include <looptorch/loop/ranks.hpp>
#include <looptorch/loop/run_phase.hpp>

#include <concepts>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

namespace looptorch {
struct LossScale;
}

namespace looptorch::detail {

class MicroBatchGraphs;

/// A policy with a per-run state, which each of its hooks takes.
template <class P>
concept HasState = std::default_initializable<typename P::State>;
struct NoState {};
template <class P>
struct StateOf {
  using type = NoState;
};
template <HasState P>
struct StateOf<P> {
  using type = typename P::State;
};
template <class P>
using state_t = typename StateOf<P>::type;

/// Means an object of any type in the table of hooks.
struct Guard;

template <class Returned, class Result>
inline constexpr bool returns = std::is_same_v<Returned, Result>;
template <class Returned>
inline constexpr bool returns<Returned, Guard> = !std::is_void_v<Returned>;

/// The parameters of a const member function, as a tuple, and its result.
template <class Member>
struct Signature {};
template <class Returned, class P, class... Parameters>
struct Signature<Returned (P::*)(Parameters...) const> {
  using result = Returned;
  using parameters = std::tuple<Parameters...>;
};
template <class Returned, class P, class... Parameters>
struct Signature<Returned (P::*)(Parameters...) const noexcept>
    : Signature<Returned (P::*)(Parameters...) const> {};

template <class T>
using one_or_no_argument_t = std::conditional_t<std::is_void_v<T>, std::tuple<>, std::tuple<T>>;

/// The parameters of P's hook that takes Argument: State& comes last where P has a State.
template <class P, class Argument>
using hook_parameters_t = decltype(std::tuple_cat(
    std::declval<one_or_no_argument_t<Argument>>(),
    std::declval<one_or_no_argument_t<std::conditional_t<HasState<P>, state_t<P>&, void>>>()));

template <class P, class Member, class Argument, class Result>
constexpr bool has_signature() {
  if constexpr (requires { typename Signature<Member>::result; })
    return std::is_same_v<typename Signature<Member>::parameters, hook_parameters_t<P, Argument>> &&
           returns<typename Signature<Member>::result, Result>;
  else
    return false;
}

// Makes one struct for each hook, since a member's name cannot be a template argument.
//   named: P or a base of P has a member of that name, even a private one: the name is then ambiguous in
//          Both, which inherits it from Names too.
//   valid: it is public, not overloaded, and of the hook's signature.
//   call:  calls it, with the state if P has one.
#define LOOPTORCH_DETAIL_HOOK(hook, Argument, Result)                                \
  struct hook##_hook {                                                               \
    static constexpr std::string_view name = #hook;                                  \
    struct Names {                                                                   \
      int hook;                                                                      \
    };                                                                               \
    template <class P>                                                               \
    struct Both : P, Names {};                                                       \
    template <class P>                                                               \
    static constexpr bool reachable = requires {                                     \
      &P::hook;                                                                      \
    };                                                                               \
    template <class P>                                                               \
    static constexpr bool named() {                                                  \
      if constexpr (std::is_final_v<P> || !std::is_class_v<P>)                       \
        return reachable<P>;                                                         \
      else                                                                           \
        return !requires { &Both<P>::hook; };                                        \
    }                                                                                \
    template <class P>                                                               \
    static constexpr bool valid() {                                                  \
      if constexpr (reachable<P>)                                                    \
        return has_signature<P, decltype(&P::hook), Argument, Result>();             \
      else                                                                           \
        return false;                                                                \
    }                                                                                \
    template <class P, class... Args>                                                \
    static decltype(auto) call(const P& policy, state_t<P>& state, Args&&... args) { \
      if constexpr (HasState<P>)                                                     \
        return policy.hook(args..., state);                                          \
      else                                                                           \
        return policy.hook(args...);                                                 \
    }                                                                                \
  };
LOOPTORCH_DETAIL_HOOKS(LOOPTORCH_DETAIL_HOOK)
#undef LOOPTORCH_DETAIL_HOOK

/// True for a member that has a hook's name and would never run.
template <class Hook, class P>
inline constexpr bool near_miss = Hook::template named<P>() && !Hook::template valid<P>();

template <class P, class... Hooks>
struct HooksOf {
  static constexpr bool any = (Hooks::template valid<P>() || ...);
  static constexpr bool any_missed = (near_miss<Hooks, P> || ...);
};
#define LOOPTORCH_DETAIL_LISTED(hook, Argument, Result) , hook##_hook
template <class P>
using all_hooks_t = HooksOf<P LOOPTORCH_DETAIL_HOOKS(LOOPTORCH_DETAIL_LISTED)>;
#undef LOOPTORCH_DETAIL_LISTED

/// A type with at least one hook.
template <class P>
concept HasHook = all_hooks_t<P>::any;
/// A type with a member that has a hook's name and another form.
template <class P>
concept HasNearMiss = all_hooks_t<P>::any_missed;

}  // namespace looptorch::detail
