// SPDX-License-Identifier: MIT
// Sorts what a user lists in a Trainer into updates and policies.
#pragma once

#include <looptorch/data/loader/pinned_prefetch_loader.hpp>
#include <looptorch/loop/compose/policy_stack.hpp>
#include <looptorch/loop/update.hpp>

#include <tuple>
#include <type_traits>
#include <utility>

namespace looptorch::detail {

template <class Part>
auto as_update(Part&& part) {
  if constexpr (is_update<std::remove_cvref_t<Part>>)
    return std::tuple<std::remove_cvref_t<Part>>(std::forward<Part>(part));
  else
    return std::tuple<>();
}

template <class Part>
auto as_policy(Part&& part) {
  if constexpr (is_update<std::remove_cvref_t<Part>>)
    return std::tuple<>();
  else
    return std::tuple<std::remove_cvref_t<Part>>(std::forward<Part>(part));
}

template <class... Parts>
using updates_t = decltype(std::tuple_cat(as_update(std::declval<Parts>())...));

template <class List>
struct StackOf;
template <class... Policies>
struct StackOf<std::tuple<Policies...>> {
  using type = PolicyStack<Policies...>;
};
template <class... Parts>
using stack_t = typename StackOf<decltype(std::tuple_cat(as_policy(std::declval<Parts>())...))>::type;

template <class Stack, class Policies>
Stack make_stack(Policies&& policies) {
  return std::apply([](auto&&... policy) { return Stack(std::move(policy)...); }, std::move(policies));
}

/// The first of the types that is not void; void if all are.
template <class... Types>
struct FirstFound {
  using type = void;
};
template <class Type, class... Rest>
struct FirstFound<Type, Rest...>
    : std::conditional_t<std::is_void_v<Type>, FirstFound<Rest...>, std::type_identity<Type>> {};

template <class Part>
struct AsLoader {
  using type = void;
};
template <class Order, class Collate>
struct AsLoader<PinnedPrefetchLoader<void, Order, Collate>> {
  using type = PinnedPrefetchLoader<void, Order, Collate>;
};
/// The listed policy by which `fit(dataset)` loads; void without one.
template <class... Parts>
using loader_policy_t = typename FirstFound<typename AsLoader<unwrapped_t<Parts>>::type...>::type;

/// A handle to a module: a ModuleHolder or a shared pointer.
template <class Model>
concept ModelHandle = !is_update<Model> && requires(Model & model) {
  model->parameters();
  model->modules();
  static_cast<bool>(model);
  *model;
};

/// Stands in for the model where a Trainer was deduced from arguments that fit neither form.
struct Misused {};

}  // namespace looptorch::detail
