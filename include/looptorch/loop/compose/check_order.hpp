// SPDX-License-Identifier: MIT
// Checks the order of a Trainer's policies at compile time. Rejects declarations that contradict each other,
// and two policies that change gradients if neither declares which runs first.
#pragma once

#include <looptorch/base/tensors/for_each_index.hpp>
#include <looptorch/loop/compose/declared_members.hpp>
#include <looptorch/loop/compose/hooks.hpp>
#include <looptorch/loop/compose/order.hpp>
#include <looptorch/loop/compose/policy_stack.hpp>
#include <looptorch/loop/compose/rules.hpp>

#include <cstddef>
#include <tuple>
#include <type_traits>

namespace looptorch::detail {

/// Names two policies each of which would have to run before the other, in the compiler's note.
template <class A, class B>
struct Contradiction;
/// Names two policies that change gradients without an order, in the compiler's note.
template <class A, class B>
struct Unordered;

/// True if the policy's before_update may change gradients: its phase is `check` or `clip`, and it does not
/// declare that it only reads them.
template <class P>
constexpr bool may_change_gradients() {
  if constexpr (!before_update_hook::valid<P>())
    return false;
  else if constexpr (declares_changes_gradients<P>())
    return P::changes_gradients;
  else
    return phase_of<P>() == Phase::check || phase_of<P>() == Phase::clip;
}

/// True if A and B never run in one Trainer, or are of one kind, such as two `On`, which run as listed.
template <class A, class B>
inline constexpr bool needs_no_order =
    std::is_same_v<family_t<A>, family_t<B>> || !std::is_void_v<declared_exclusion_t<A, B>> ||
    !std::is_void_v<declared_exclusion_t<B, A>>;

struct IndexPair {
  std::size_t first = 0, second = 0;  // equal: none
};

template <class... P>
constexpr IndexPair first_contradiction() {
  constexpr auto& before = kPrecedence<P...>;
  for (std::size_t i = 0; i < sizeof...(P); ++i)
    for (std::size_t j = i + 1; j < sizeof...(P); ++j)
      if (before[i][j] && before[j][i]) return {i, j};
  return {};
}

template <class... P>
constexpr IndexPair first_unordered() {
  constexpr auto& before = kPrecedence<P...>;
  IndexPair found;
  for_each_index<sizeof...(P)>([&](auto i) {
    using A = std::tuple_element_t<i, std::tuple<P...>>;
    if constexpr (may_change_gradients<A>())
      for_each_index<sizeof...(P)>([&](auto j) {
        using B = std::tuple_element_t<j, std::tuple<P...>>;
        if constexpr (i < j && !before[i][j] && !before[j][i] && may_change_gradients<B>())
          if (!needs_no_order<A, B>) found = {i, j};
      });
  });
  return found;
}

/// Void for no pair, otherwise `Name` of the two policies.
template <template <class, class> class Name, std::size_t I, std::size_t J, class Policies>
struct NamedPair {
  using type = Name<std::tuple_element_t<I, Policies>, std::tuple_element_t<J, Policies>>;
};
template <template <class, class> class Name, std::size_t I, class Policies>
struct NamedPair<Name, I, I, Policies> {
  using type = void;
};

/// Checks that listed policies can be sorted, those under When included, since they may all be on.
template <class Stack>
struct CheckOrder;
template <class... Listed>
struct CheckOrder<PolicyStack<Listed...>> {
  using Policies = std::tuple<unwrapped_t<Listed>...>;
  static constexpr IndexPair circle = first_contradiction<unwrapped_t<Listed>...>();
  static constexpr IndexPair loose = first_unordered<unwrapped_t<Listed>...>();
  using contradiction = typename NamedPair<Contradiction, circle.first, circle.second, Policies>::type;
  using unordered = typename NamedPair<Unordered, loose.first, loose.second, Policies>::type;
  static_assert(std::is_void_v<contradiction>,
                "looptorch: two listed policies would each have to run before the other, by their `phase`, "
                "`runs_before` and `runs_after`. Drop one of these declarations. See "
                "docs/errors.md#order-contradiction");
  static_assert(std::is_void_v<unordered>,
                "looptorch: two listed policies change gradients in one phase, and nothing says which comes "
                "first. Give one of them `using runs_before = Before<Other>;` or `using runs_after = "
                "After<Other>;`. See docs/errors.md#no-order");
};

}  // namespace looptorch::detail
