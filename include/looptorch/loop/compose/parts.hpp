// SPDX-License-Identifier: MIT
// Computes from a Trainer's template arguments the types that it is made of: its updates, its PolicyStack
// (policy_stack.hpp), the evaluations that policies declare, and the policy that makes a loader when `fit` is
// given a dataset.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/text/type_name.hpp>
#include <looptorch/loop/compose/declared_members.hpp>
#include <looptorch/loop/compose/measure.hpp>
#include <looptorch/loop/compose/policy_stack.hpp>
#include <looptorch/loop/update.hpp>

#include <ranges>
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

/// The first listed policy that makes loaders; void without one.
template <class... Parts>
using loader_policy_t = typename FirstFound<
    std::conditional_t<makes_loader<unwrapped_t<Parts>>(), unwrapped_t<Parts>, void>...>::type;

/// True if `Data` is no range of batches, and P can make one from it.
template <class P, class Data>
concept LoadsFrom = (!std::ranges::input_range<Data>)&&requires(const P& policy, Data&& data) {
  policy.make(std::forward<Data>(data));
};

/// Returns the range that the policy P makes from a dataset. Throws UsageError if P is switched off.
template <class P, class Stack, class Data>
auto load_by(Stack& stack, Data&& dataset) {
  const auto found = stack.template find<P>();
  if (!found.enabled)
    throw UsageError(message("fit was given a dataset, but the listed ", type_name<P>(), " is switched off"));
  return found.policy->make(std::forward<Data>(dataset));
}

/// The type that a policy declares as `evaluates`: an Evaluates, or a tuple of several. Else an empty tuple.
template <class P>
struct EvaluatesOf {
  using type = std::tuple<>;
};
template <class P>
requires is_evaluates<typename P::evaluates>
struct EvaluatesOf<P> {
  using type = typename P::evaluates;
};

template <class T>
struct AsTuple {
  using type = std::tuple<T>;
};
template <class... Each>
struct AsTuple<std::tuple<Each...>> {
  using type = std::tuple<Each...>;
};

/// The Evaluates that all policies declare, as a tuple.
template <class... Parts>
using evaluations_t = decltype(std::tuple_cat(
    std::declval<typename AsTuple<typename EvaluatesOf<unwrapped_t<Parts>>::type>::type>()...));

/// A handle to a module: a ModuleHolder or a shared pointer.
template <class Model>
concept ModelHandle = !is_update<Model> && requires(Model & model) {
  model->parameters();
  model->modules();
  static_cast<bool>(model);
  *model;
};

/// Replaces the model in a Trainer deduced from arguments that fit neither form.
struct Misused {};

}  // namespace looptorch::detail
