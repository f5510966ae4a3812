// SPDX-License-Identifier: MIT
// Sorts listed policies at compile time: by phase, then by their declarations `runs_before` and `runs_after`.
// Policies without an order between them run in the order of the list.
#pragma once

#include <looptorch/loop/compose/declared_members.hpp>
#include <looptorch/loop/compose/hooks.hpp>
#include <looptorch/loop/compose/rules.hpp>
#include <looptorch/loop/phase.hpp>

#include <array>
#include <cstddef>
#include <type_traits>

namespace looptorch::detail {

/// True if an entry of Before or After means policy P.
template <class Entry, class P>
inline constexpr bool means_policy = std::is_same_v<Entry, P> || std::is_same_v<Entry, family_t<P>>;
template <template <class...> class Template, class... Arguments>
inline constexpr bool means_policy<Every<Template>, Template<Arguments...>> = true;

template <class List>
inline constexpr bool is_before_list = false;
template <class... Entries>
inline constexpr bool is_before_list<Before<Entries...>> = true;
template <class List>
inline constexpr bool is_after_list = false;
template <class... Entries>
inline constexpr bool is_after_list<After<Entries...>> = true;

template <class P>
concept HasRunsBefore = is_before_list<typename P::runs_before>;
template <class P>
concept HasRunsAfter = is_after_list<typename P::runs_after>;

template <class List, class P>
inline constexpr bool has_entry = false;
template <class... Entries, class P>
inline constexpr bool has_entry<Before<Entries...>, P> = (means_policy<Entries, P> || ...);
template <class... Entries, class P>
inline constexpr bool has_entry<After<Entries...>, P> = (means_policy<Entries, P> || ...);

/// A matrix over policies: [i][j] is true if policy i runs before j.
template <std::size_t N>
using Precedence = std::array<std::array<bool, N>, N>;

/// The policies of `P...` that policy A declares to run before, and after.
template <class A, class... P>
constexpr std::array<bool, sizeof...(P)> declared_later() {
  if constexpr (HasRunsBefore<A>)
    return {has_entry<typename A::runs_before, P>...};
  else
    return {};
}
template <class A, class... P>
constexpr std::array<bool, sizeof...(P)> declared_earlier() {
  if constexpr (HasRunsAfter<A>)
    return {has_entry<typename A::runs_after, P>...};
  else
    return {};
}

/// Returns the order that phases and declarations imply, closed transitively. A policy that precedes itself
/// is part of a contradiction.
template <class... P>
constexpr Precedence<sizeof...(P)> precedence() {
  constexpr std::size_t n = sizeof...(P);
  const std::array<Phase, n> phases{phase_of<P>()...};
  const Precedence<n> later{declared_later<P, P...>()...}, earlier{declared_earlier<P, P...>()...};
  Precedence<n> before{};
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = 0; j < n; ++j)
      before[i][j] = i != j && (phases[i] < phases[j] || later[i][j] || earlier[j][i]);
  for (std::size_t through = 0; through < n; ++through)
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t j = 0; before[i][through] && j < n; ++j) before[i][j] |= before[through][j];
  return before;
}
template <class... P>
inline constexpr auto kPrecedence = precedence<P...>();

/// Returns the first unplaced index that no unplaced index precedes; in a contradiction, the first unplaced.
template <std::size_t N>
constexpr std::size_t next_to_place(const Precedence<N>& before, const std::array<bool, N>& placed) {
  std::size_t first_left = N;
  for (std::size_t i = 0; i < N; ++i) {
    if (placed[i]) continue;
    if (first_left == N) first_left = i;
    bool is_free = true;
    for (std::size_t j = 0; j < N; ++j) is_free &= placed[j] || !before[j][i];
    if (is_free) return i;
  }
  return first_left;
}

/// Returns the indices of the policies in the order in which their hooks run.
template <class... P>
constexpr std::array<std::size_t, sizeof...(P)> running_order() {
  std::array<std::size_t, sizeof...(P)> order{};
  std::array<bool, sizeof...(P)> placed{};
  for (std::size_t& index : order) placed[index = next_to_place(kPrecedence<P...>, placed)] = true;
  return order;
}

}  // namespace looptorch::detail
