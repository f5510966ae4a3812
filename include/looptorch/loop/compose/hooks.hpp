// SPDX-License-Identifier: MIT
// Which hooks a policy has, found at compile time. A hook is an optional const member function with one exact
// signature; a member that has a hook's name and is anything else is an error, since it would never run.
//
//   void on_fit_begin(FitContext&) const             void on_fit_end(FitContext&) const
//   void on_switched_off(FitContext&) const
//   void on_epoch_begin(EpochContext&) const         void on_epoch_end(EpochContext&) const
//   Guard forward_scope(const ForwardContext&) const at::Tensor scale_loss(const at::Tensor& loss) const
//   void before_update(UpdateContext&) const         void after_update(UpdateContext&) const
//   void on_window_end(WindowContext&) const         Guard evaluation_scope(const EvaluationContext&) const
//   void state_dict(StateDict&) const                void load_state_dict(const StateDict&) const
//
// A policy with a nested type `State` takes `State&` as a further last parameter in each of its hooks.
#pragma once

#include <looptorch/base/state_dict.hpp>
#include <looptorch/loop/context.hpp>
#include <looptorch/loop/phase.hpp>

#include <concepts>
#include <type_traits>

namespace looptorch::detail {

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

/// True for a policy that says `static constexpr bool settles_late = true`: its `after_update` may run as
/// late as right before the next update.
template <class P>
inline constexpr bool kSettlesLate = false;
// clang-format off
template <class P>
  requires(P::settles_late)
inline constexpr bool kSettlesLate<P> = true;
// clang-format on

/// True when Member is a const member function of P that takes Arg (and State& where P has a State) and
/// returns something that Returns accepts.
template <class P, class Member, class Arg, template <class> class Returns>
inline constexpr bool has_signature = false;
template <class P, class Base, class R, class Arg, template <class> class Returns>
inline constexpr bool has_signature<P, R (Base::*)(Arg) const, Arg, Returns> =
    !HasState<P> && Returns<R>::value;
template <class P, class Base, class R, class Arg, template <class> class Returns>
inline constexpr bool has_signature<P, R (Base::*)(Arg) const noexcept, Arg, Returns> =
    !HasState<P> && Returns<R>::value;
template <class P, class Base, class R, class Arg, class State, template <class> class Returns>
inline constexpr bool has_signature<P, R (Base::*)(Arg, State&) const, Arg, Returns> =
    std::is_same_v<state_t<P>, State>&& Returns<R>::value;
template <class P, class Base, class R, class Arg, class State, template <class> class Returns>
inline constexpr bool has_signature<P, R (Base::*)(Arg, State&) const noexcept, Arg, Returns> =
    std::is_same_v<state_t<P>, State>&& Returns<R>::value;

template <class R>
using returns_nothing = std::is_void<R>;
template <class R>
using returns_guard = std::negation<std::is_void<R>>;
template <class R>
using returns_tensor = std::is_same<R, at::Tensor>;

// One struct a hook, since a member's name cannot be a template argument.
//   named: P or a base of P has a member of that name, whatever its access.
//   valid: it is public, not overloaded, and of the hook's signature.
#define LOOPTORCH_DETAIL_HOOK(hook, Arg, Returns)                                    \
  struct hook##_hook {                                                               \
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
        return has_signature<P, decltype(&P::hook), Arg, Returns>;                   \
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
  }

LOOPTORCH_DETAIL_HOOK(on_fit_begin, FitContext&, returns_nothing);
LOOPTORCH_DETAIL_HOOK(on_fit_end, FitContext&, returns_nothing);
LOOPTORCH_DETAIL_HOOK(on_switched_off, FitContext&, returns_nothing);
LOOPTORCH_DETAIL_HOOK(on_epoch_begin, EpochContext&, returns_nothing);
LOOPTORCH_DETAIL_HOOK(on_epoch_end, EpochContext&, returns_nothing);
LOOPTORCH_DETAIL_HOOK(forward_scope, const ForwardContext&, returns_guard);
LOOPTORCH_DETAIL_HOOK(scale_loss, const at::Tensor&, returns_tensor);
LOOPTORCH_DETAIL_HOOK(before_update, UpdateContext&, returns_nothing);
LOOPTORCH_DETAIL_HOOK(after_update, UpdateContext&, returns_nothing);
LOOPTORCH_DETAIL_HOOK(on_window_end, WindowContext&, returns_nothing);
LOOPTORCH_DETAIL_HOOK(evaluation_scope, const EvaluationContext&, returns_guard);
LOOPTORCH_DETAIL_HOOK(state_dict, StateDict&, returns_nothing);
LOOPTORCH_DETAIL_HOOK(load_state_dict, const StateDict&, returns_nothing);

#undef LOOPTORCH_DETAIL_HOOK

/// A member that has a hook's name and would never run.
template <class Hook, class P>
inline constexpr bool near_miss = Hook::template named<P>() && !Hook::template valid<P>();

template <class P, class... Hooks>
struct HooksOf {
  static constexpr bool any = (Hooks::template valid<P>() || ...);
  static constexpr bool any_missed = (near_miss<Hooks, P> || ...);
};
template <class P>
using all_hooks_t =
    HooksOf<P, on_fit_begin_hook, on_fit_end_hook, on_switched_off_hook, on_epoch_begin_hook,
            on_epoch_end_hook, forward_scope_hook, scale_loss_hook, before_update_hook, after_update_hook,
            on_window_end_hook, evaluation_scope_hook, state_dict_hook, load_state_dict_hook>;

template <class P>
concept HasHook = all_hooks_t<P>::any;
template <class P>
concept HasNearMiss = all_hooks_t<P>::any_missed;
/// A policy that the Trainer reads rather than calls says so by `static constexpr bool is_policy = true`.
template <class P>
concept DeclaredPolicy = requires {
  requires P::is_policy;
};

// Members that are not functions: named, whatever their access, or reachable.
#define LOOPTORCH_DETAIL_VALUE(member)                                         \
  struct Names_##member {                                                      \
    int member;                                                                \
  };                                                                           \
  template <class P>                                                           \
  struct Both_##member : P, Names_##member {};                                 \
  template <class P>                                                           \
  constexpr bool names_##member() {                                            \
    if constexpr (std::is_final_v<P> || !std::is_class_v<P>) return requires { \
        P::member;                                                             \
      };                                                                       \
    else                                                                       \
      return !requires { &Both_##member<P>::member; };                         \
  }
#define LOOPTORCH_DETAIL_TYPE(member)                                          \
  struct Names_##member {                                                      \
    struct member {};                                                          \
  };                                                                           \
  template <class P>                                                           \
  struct Both_##member : P, Names_##member {};                                 \
  template <class P>                                                           \
  constexpr bool names_##member() {                                            \
    if constexpr (std::is_final_v<P> || !std::is_class_v<P>) return requires { \
        typename P::member;                                                    \
      };                                                                       \
    else                                                                       \
      return !requires { typename Both_##member<P>::member; };                 \
  }

LOOPTORCH_DETAIL_VALUE(phase)
LOOPTORCH_DETAIL_VALUE(repeatable)
LOOPTORCH_DETAIL_TYPE(excludes)
LOOPTORCH_DETAIL_TYPE(family)
LOOPTORCH_DETAIL_TYPE(State)

#undef LOOPTORCH_DETAIL_VALUE
#undef LOOPTORCH_DETAIL_TYPE

template <class P>
concept HasPhase = std::is_same_v<decltype(P::phase), const Phase>;

template <class P>
constexpr Phase phase_of() {
  if constexpr (HasPhase<P>)
    return P::phase;
  else
    return Phase::observe;
}

}  // namespace looptorch::detail
