// SPDX-License-Identifier: MIT
// Sorts what a user lists in a Trainer into updates and policies.
#pragma once

#include "looptorch/loop/policy_stack.hpp"
#include "looptorch/loop/update.hpp"

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

/// What a Trainer's parts are checked for: a policy alone, an update not at all.
template <class Part>
struct CheckPart : CheckPolicy<unwrapped_t<Part>> {};
template <class Part>
  requires is_update<Part>
struct CheckPart<Part> {};

/// The checks of every two policies that are both listed without When; conflicts of others are found by fit.
template <class A, class B>
constexpr std::size_t check_pair() {
  if constexpr (is_update<A> || is_update<B> || is_when<A> || is_when<B>)
    return 1;
  else
    return sizeof(CheckPair<A, B>);
}

template <class... Parts>
struct CheckPairs {};
template <class A, class... Later>
struct CheckPairs<A, Later...> : CheckPairs<Later...> {
  static_assert(((check_pair<A, Later>() > 0) && ...));
};

/// A handle to a module: a ModuleHolder or a shared pointer.
template <class Model>
concept ModelHandle = !is_update<Model> && requires(Model& model) {
  model->parameters();
  model->modules();
  static_cast<bool>(model);
  *model;
};

/// Stands in for the model where a Trainer was deduced from arguments that fit neither form.
struct Misused {};

}  // namespace looptorch::detail
