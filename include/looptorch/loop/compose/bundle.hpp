// SPDX-License-Identifier: MIT
// Implements bundles, each of which is several policies that are listed as one. A Trainer that lists a bundle
// is derived from the Trainer that lists the bundle's policies. So both have the same checks, order, states
// and code. Compiler errors name both types. Trainers without bundles compile nothing of this header.
#pragma once

#include <looptorch/loop/compose/deduction.hpp>
#include <looptorch/loop/compose/policy_stack.hpp>
#include <looptorch/loop/update.hpp>

#include <concepts>
#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

namespace looptorch {

/// A bundle: counts as the policies in it, wherever policies are listed. Takes them by value, so move those
/// that cannot be copied. May hold other bundles. `When{flag, bundle}` switches each of its policies.
///
///   auto house_standard(double norm) { return Policies{Accumulate<>{4}, ClipGradNorm{norm}}; }
///   Trainer trainer(net, optimizer, objective, house_standard(1.0), ShowProgress{});
///
/// Derive from it to give a bundle a name that compilers use in their errors. A std::tuple of policies is a
/// bundle too.
template <class... Listed>
struct Policies {
  using bundle = Policies;
  explicit Policies(Listed... listed) : policies(std::move(listed)...) {}

  /// Returns the bundle without the policy P, switched or not. Use it to list P with other options:
  /// `house_standard(1.0).without<ClipGradNorm>()`.
  template <class P>
  [[nodiscard]] auto without() &&;

  std::tuple<Listed...> policies;
};

namespace detail {

/// True if T is replaced by its contents: a bundle, or When of a bundle or of another When.
template <class T>
inline constexpr bool is_bundle = requires {
  typename T::bundle;
  requires std::derived_from<T, typename T::bundle>;
};
template <class... Listed>
inline constexpr bool is_bundle<std::tuple<Listed...>> = true;
template <class P>
inline constexpr bool is_bundle<When<P>> = is_bundle<P> || is_when<P>;

/// Returns the policy under one more switch: it is on if both are.
template <class P>
When<P> switched(bool flag, P policy) {
  return {flag, std::move(policy)};
}
template <class P>
When<P> switched(bool flag, When<P> when) {
  return {flag && when.flag, std::move(when.policy)};
}

/// Returns the policies in a bundle, nested bundles flattened; for any other part, a tuple of that part
/// alone.
template <class Part>
auto flattened(Part&& part) {
  if constexpr (!is_bundle<Part>)
    return std::tuple<Part>(std::forward<Part>(part));
  else if constexpr (is_when<Part>)
    return std::apply([&](auto&&... each) { return std::tuple(switched(part.flag, std::move(each))...); },
                      flattened(std::move(part.policy)));
  else if constexpr (requires { typename Part::bundle; })
    return flattened(std::move(static_cast<typename Part::bundle&>(part).policies));
  else
    return [&]<std::size_t... I>(std::index_sequence<I...>) {
      return std::tuple_cat(flattened<std::tuple_element_t<I, Part>>(std::get<I>(std::move(part)))...);
    }
  (std::make_index_sequence<std::tuple_size_v<Part>>{});
}

/// Returns a tuple of a policy, or an empty one if it is P or When<P>.
template <class P, class Each>
auto unless_it_is(Each&& each) {
  if constexpr (std::is_same_v<unwrapped_t<std::remove_cvref_t<Each>>, P>)
    return std::tuple<>();
  else
    return std::tuple<std::remove_cvref_t<Each>>(std::move(each));
}

template <class... Parts>
using flat_parts_t = decltype(std::tuple_cat(flattened<Parts>(std::declval<Parts>())...));

template <class Model, class FlatParts>
struct TrainerOf;
template <class Model, class... Parts>
struct TrainerOf<Model, std::tuple<Parts...>> {
  using type = Trainer<Model, Parts...>;
};

}  // namespace detail

template <class... Listed>
template <class P>
auto Policies<Listed...>::without() && {
  auto all = detail::flattened(std::move(*this));
  auto kept =
      std::apply([](auto&&... each) { return std::tuple_cat(detail::unless_it_is<P>(std::move(each))...); },
                 std::move(all));
  static_assert(
      std::tuple_size_v<decltype(kept)> < std::tuple_size_v<decltype(all)>,
      "looptorch: without<P>() takes the policy P out of a bundle, and this one does not hold it. See "
      "docs/errors.md#bundles");
  return std::apply(
      [](auto&&... each) { return Policies<std::remove_cvref_t<decltype(each)>...>(std::move(each)...); },
      std::move(kept));
}

// clang-format off: version 14 lays out no requires-clauses
/// A Trainer that lists bundles: the Trainer of the policies in them.
template <class Model, class... Parts>
requires(detail::is_bundle<Parts> || ...) class Trainer<Model, Parts...>
    : public detail::TrainerOf<Model, detail::flat_parts_t<Parts...>>::type {
  using Plain = typename detail::TrainerOf<Model, detail::flat_parts_t<Parts...>>::type;

 public:
  Trainer(std::type_identity_t<Model> model, Parts... parts)
      : Trainer(std::make_index_sequence<std::tuple_size_v<detail::flat_parts_t<Parts...>>>{}, model,
                std::tuple_cat(detail::flattened<Parts>(std::forward<Parts>(parts))...)) {}

  template <class Optimizer, class Objective, class... Listed>
  requires std::same_as<
      std::tuple<Parts...>,
      std::tuple<decltype(Update(std::declval<Optimizer>(), std::declval<Objective>())), Listed...>>
  Trainer(std::type_identity_t<Model> model, Optimizer&& optimizer, Objective objective, Listed... listed)
      : Trainer(std::move(model), Update(std::forward<Optimizer>(optimizer), std::move(objective)),
                std::move(listed)...) {}

 private:
  template <std::size_t... I, class FlatParts>
  Trainer(std::index_sequence<I...>, Model& model, FlatParts parts)
      : Plain(std::move(model), std::get<I>(std::move(parts))...) {}
};
// clang-format on

}  // namespace looptorch
