// SPDX-License-Identifier: MIT
// Finds at compile time what a policy declares besides hooks: its phase, its resume rule, types such as
// `excludes`, and its capabilities (constants such as `takes_snapshots`, which hook_table.hpp lists). The
// checks and the loop read them here.
#pragma once

#include <looptorch/loop/compose/hook_table.hpp>
#include <looptorch/loop/phase.hpp>
#include <looptorch/loop/resume_rule.hpp>

#include <type_traits>

namespace looptorch::detail {

// Makes one function for each member, since a member's name cannot be a template argument. `names_x<P>()` is
// true if P or a base has the member, even a private one: the name is then ambiguous in Both, which inherits
// it from Names too.
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
// A capability: `declares_x` is true if P has it as a public constant, `x<P>()` is its value.
#define LOOPTORCH_DETAIL_CAPABILITY(member, meaning)            \
  LOOPTORCH_DETAIL_VALUE(member)                                \
  template <class P>                                            \
  constexpr bool declares_##member() {                          \
    return requires {                                           \
      std::bool_constant<P::member>{};                          \
      requires std::is_same_v<decltype(P::member), const bool>; \
    };                                                          \
  }                                                             \
  template <class P>                                            \
  constexpr bool member() {                                     \
    if constexpr (declares_##member<P>())                       \
      return P::member;                                         \
    else                                                        \
      return false;                                             \
  }

LOOPTORCH_DETAIL_CAPABILITIES(LOOPTORCH_DETAIL_CAPABILITY)
LOOPTORCH_DETAIL_VALUE(phase)
LOOPTORCH_DETAIL_VALUE(resume_rule)
LOOPTORCH_DETAIL_TYPE(excludes)
LOOPTORCH_DETAIL_TYPE(family)
LOOPTORCH_DETAIL_TYPE(evaluates)
LOOPTORCH_DETAIL_TYPE(runs_before)
LOOPTORCH_DETAIL_TYPE(runs_after)
LOOPTORCH_DETAIL_TYPE(State)

#undef LOOPTORCH_DETAIL_CAPABILITY
#undef LOOPTORCH_DETAIL_VALUE
#undef LOOPTORCH_DETAIL_TYPE

template <class P>
concept HasPhase = std::is_same_v<decltype(P::phase), const Phase>;

template <class P>
concept HasResumeRule = std::is_same_v<decltype(P::resume_rule), const ResumeRule>;

/// Returns the policy's phase; observe if it declares none.
template <class P>
constexpr Phase phase_of() {
  if constexpr (HasPhase<P>)
    return P::phase;
  else
    return Phase::observe;
}

}  // namespace looptorch::detail
