// SPDX-License-Identifier: MIT
// Decides which policies may be combined. Each policy declares which others it excludes, with a reason and a
// remedy. Listing two such policies is a compile-time error of one sentence. For a policy under `When` the
// check is made as `fit` begins, which throws the same sentence if both policies are on.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/text/type_name.hpp>
#include <looptorch/loop/compose/declared_members.hpp>
#include <looptorch/loop/compose/hooks.hpp>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

namespace looptorch {

/// Two listed policies that exclude each other, found when fit begins.
struct PolicyConflict : UsageError {
  using UsageError::UsageError;
};

/// A string that can be a template argument.
template <std::size_t N>
struct FixedString {
  constexpr FixedString(const char (&text)[N]) { std::copy_n(text, N, characters); }
  [[nodiscard]] constexpr std::string_view view() const { return {characters, N - 1}; }
  char characters[N]{};
};

/// "This policy excludes Other, because Reason; Remedy." Other is a policy, or a family such as
/// AccumulateFamily.
template <class Other, FixedString Reason, FixedString Remedy>
struct Excludes {
  using other = Other;
  static constexpr std::string_view reason = Reason.view();
  static constexpr std::string_view remedy = Remedy.view();
};

/// A policy's declaration: `using excludes = looptorch::ExclusionList<Excludes<...>, ...>;`
template <class... Exclusions>
struct ExclusionList {};

/// The reason why two policies exclude each other, and the remedy.
struct Exclusion {
  std::string_view reason;
  std::string_view remedy;
};

namespace detail {

template <class P>
struct FamilyOf {
  using type = P;
};
template <class P>
requires requires { typename P::family; }
struct FamilyOf<P> {
  using type = typename P::family;
};
/// Policies of one family are variants of one thing: a Trainer takes only one.
template <class P>
using family_t = typename FamilyOf<P>::type;

template <class A, class B>
inline constexpr bool same_family = std::is_same_v<family_t<A>, family_t<B>> && !repeatable<A>();

/// The first of A's exclusions that names B's family; void if none does.
template <class B, class List>
struct Match {
  using type = void;
};
template <class B, class E, class... Rest>
struct Match<B, ExclusionList<E, Rest...>>
    : std::conditional_t<std::is_same_v<typename E::other, B> ||
                             std::is_same_v<typename E::other, family_t<B>>,
                         std::type_identity<E>, Match<B, ExclusionList<Rest...>>> {};

template <class T>
inline constexpr bool is_exclusion_list = false;
template <class... E>
inline constexpr bool is_exclusion_list<ExclusionList<E...>> = true;

template <class A>
struct ExclusionsOf {
  using type = ExclusionList<>;
};
template <class A>
requires is_exclusion_list<typename A::excludes>
struct ExclusionsOf<A> {
  using type = typename A::excludes;
};

template <class A, class B>
using declared_exclusion_t = typename Match<B, typename ExclusionsOf<A>::type>::type;

template <class A, class B>
constexpr std::optional<Exclusion> declared_exclusion() {
  using E = declared_exclusion_t<A, B>;
  if constexpr (std::is_void_v<E>)
    return std::nullopt;
  else
    return Exclusion{E::reason, E::remedy};
}

}  // namespace detail

/// Returns the exclusion that A or B declares against the other, if any. The Trainer and the pages use it.
template <class A, class B>
[[nodiscard]] constexpr std::optional<Exclusion> exclusion_between() {
  const auto by_a = detail::declared_exclusion<A, B>();
  return by_a ? by_a : detail::declared_exclusion<B, A>();
}

namespace detail {

/// Returns the sentence of CheckConflicts; empty if A and B can be combined.
template <class A, class B>
std::string conflict_sentence() {
  if constexpr (same_family<A, B>)
    return message(
        "looptorch: a policy is listed twice, or in two forms: ", type_name<A>(), " and ", type_name<B>(),
        ". Keep one of them, or switch them by When{flag, policy}. See docs/errors.md#one-of-a-family");
  if constexpr (constexpr auto exclusion = exclusion_between<A, B>(); exclusion)
    return message("looptorch: ", type_name<A>(), " and ", type_name<B>(),
                   " exclude each other: ", exclusion->reason, ". ", exclusion->remedy,
                   ". See docs/errors.md#excluded");
  return {};
}

}  // namespace detail
}  // namespace looptorch
