// SPDX-License-Identifier: MIT
// Holds one Trainer's policies and their per-run states. The engine (loop/step/engine.hpp) calls hooks
// through it. Such a call compiles to direct calls of the policies in running order (order.hpp), or to
// nothing if no policy has the hook. checks.hpp has checked the list before.
#pragma once

#include <looptorch/base/tensors/for_each_index.hpp>
#include <looptorch/base/text/type_name.hpp>
#include <looptorch/loop/compose/declared_members.hpp>
#include <looptorch/loop/compose/hooks.hpp>
#include <looptorch/loop/compose/order.hpp>
#include <looptorch/loop/compose/rules.hpp>

#include <c10/util/ScopeExit.h>

#include <cstddef>
#include <exception>
#include <memory>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>

namespace looptorch {

/// Lists `policy` only if `flag` is true: a run-time switch. A policy that is off runs no hook. Conflicts
/// among policies that are on are found when fit begins.
template <class Policy>
struct When {
  bool flag;
  Policy policy;
};
template <class Policy>
When(bool, Policy) -> When<Policy>;

namespace detail {

template <class T>
inline constexpr bool is_when = false;
template <class P>
inline constexpr bool is_when<When<P>> = true;

template <class T>
struct Unwrapped {
  using type = T;
};
template <class P>
struct Unwrapped<When<P>> {
  using type = P;
};
template <class T>
using unwrapped_t = typename Unwrapped<T>::type;

/// The type of the flag that mutes a `leader_only` policy: while the flag is true, no hook of the policy is
/// called. For other policies a constant, false.
template <class P>
using muted_t = std::conditional_t<leader_only<P>(), bool, std::false_type>;
constexpr bool is_muted(bool muted) { return muted; }
constexpr bool is_muted(std::false_type) { return false; }

/// A policy's state. It stays where it is when the Trainer moves, since its parts may refer to each other.
template <class State>
struct SlotState {
 private:
  std::unique_ptr<State> held_ = std::make_unique<State>();

 public:
  State& state = *held_;
};
template <>
struct SlotState<NoState> {
  [[no_unique_address]] NoState state{};
};

/// A policy, its state, and whether it is on: a constant for most policies without `When`.
template <class Listed>
struct Slot : SlotState<state_t<Listed>> {
  using Policy = Listed;
  explicit Slot(Listed listed) : policy(std::move(listed)) {}
  bool enabled() const { return !is_muted(muted); }
  Policy policy;
  [[no_unique_address]] muted_t<Policy> muted{};
};
template <class P>
struct Slot<When<P>> : SlotState<state_t<P>> {
  using Policy = P;
  explicit Slot(When<P> when) : policy(std::move(when.policy)), flag(when.flag) {}
  bool enabled() const { return flag && !is_muted(muted); }
  Policy policy;
  bool flag;
  [[no_unique_address]] muted_t<P> muted{};
};

/// Lets std::optional hold what a function returns even if it can be neither moved nor copied.
template <class F>
struct Elide {
  F f;
  operator decltype(std::declval<F&>()())() { return f(); }
};

/// The listed policies with their states. `run<Hook>` calls a hook of all in running order, `in_scopes<Hook>`
/// nests their guards, and `find` returns one by its type.
template <class... Listed>
class PolicyStack {
 public:
  explicit PolicyStack(Listed... listed) : slots_(Slot<Listed>(std::move(listed))...) {}

  static constexpr std::size_t size() { return sizeof...(Listed); }

  /// Calls `Hook` of each policy that is switched on and has it, in running order.
  template <class Hook, class Context>
  void run([[maybe_unused]] Context&& context) {
    if constexpr (has<Hook>()) each_with<Hook>([&](auto& slot) { call<Hook>(slot, context); });
  }

  /// Calls `Hook` of the policy in `slot`, inside the scopes of policies that record such calls.
  template <class Hook, class Slot, class... Args>
  decltype(auto) call(Slot& slot, Args&&... args) {
    if constexpr (has<hook_scope_hook>())
      return in_hook_scopes<Hook, Slot>(
          [&]() -> decltype(auto) { return Hook::call(slot.policy, slot.state, args...); });
    else
      return Hook::call(slot.policy, slot.state, args...);
  }

  /// Calls `Hook` as `run` does, but of all policies even if some throw. Returns the first exception.
  template <class Hook, class Context>
  [[nodiscard]] std::exception_ptr run_all([[maybe_unused]] Context&& context) {
    std::exception_ptr first;
    if constexpr (has<Hook>())
      each_with<Hook>([&](auto& slot) {
        try {
          call<Hook>(slot, context);
        } catch (...) {
          if (!first) first = std::current_exception();
        }
      });
    return first;
  }

  /// Calls on_switched_off of the policies that `When` has switched off.
  void run_switched_off([[maybe_unused]] FitContext& context) {
    if constexpr (has<on_switched_off_hook>())
      each([&](auto& slot) {
        using P = typename std::remove_reference_t<decltype(slot)>::Policy;
        if constexpr (on_switched_off_hook::valid<P>())
          if (!slot.enabled()) on_switched_off_hook::call(slot.policy, slot.state, context);
      });
  }

  /// Mutes the policies that declare `leader_only`, or unmutes them.
  void mute(bool muted) {
    each([&](auto& slot) {
      if constexpr (leader_only<typename std::remove_reference_t<decltype(slot)>::Policy>())
        slot.muted = muted;
    });
  }

  /// True if `predicate.operator()<P>()` is true for a policy P that is switched on.
  template <class Predicate>
  bool any_enabled([[maybe_unused]] Predicate predicate) {
    bool found = false;
    if constexpr ((predicate.template operator()<unwrapped_t<Listed>>() || ...))
      each([&](auto& slot) {
        using P = typename std::remove_reference_t<decltype(slot)>::Policy;
        if constexpr (predicate.template operator()<P>()) found |= slot.enabled();
      });
    return found;
  }

  /// Calls `visit(slot)` for each policy in running order, switched on or not.
  template <class Visit>
  void each(Visit&& visit) {
    each_from(visit, std::make_index_sequence<size()>{});
  }

  /// Calls `visit(slot)` for each policy in running order that is switched on and has the hook.
  template <class Hook, class Visit>
  void each_with([[maybe_unused]] Visit&& visit) {
    if constexpr (has<Hook>()) each_from<Hook>(visit, std::make_index_sequence<size()>{});
  }

  /// Runs `body` inside the scopes that Hook opens, the first policy in running order outermost.
  template <class Hook, class Context, class Body>
  decltype(auto) in_scopes(const Context& context, Body&& body) {
    if constexpr (has<Hook>())
      return in_scopes_from<0, Hook>(context, body);
    else
      return body();
  }

  /// True if a listed policy has the hook, switched on or not.
  template <class Hook>
  static constexpr bool has() {
    return (Hook::template valid<unwrapped_t<Listed>>() || ...);
  }

  /// True if a policy that is listed without When has the hook.
  template <class Hook>
  static constexpr bool always_has() {
    return ((!is_when<Listed> && Hook::template valid<unwrapped_t<Listed>>()) || ...);
  }

  /// True if `predicate.operator()<P>()` is true for a listed policy P, switched on or not.
  template <class Predicate>
  static constexpr bool any_listed([[maybe_unused]] Predicate predicate) {
    return (predicate.template operator()<unwrapped_t<Listed>>() || ...);
  }

  template <class P>
  static constexpr bool lists() {
    return (std::is_same_v<unwrapped_t<Listed>, P> || ...);
  }

  /// A listed policy of one type, with its state.
  template <class P>
  struct Found {
    P* policy = nullptr;
    state_t<P>* state = nullptr;
    bool enabled = false;
  };

  /// Finds policy P, listed as such or within When. If there are several, finds the first that is switched
  /// on.
  template <class P>
  Found<P> find() {
    Found<P> found;
    if constexpr (lists<P>())
      for_each_index<size()>([&](auto i) {
        auto& slot = std::get<i>(slots_);
        if constexpr (std::is_same_v<typename std::remove_reference_t<decltype(slot)>::Policy, P>)
          if (!found.policy || (!found.enabled && slot.enabled()))
            found = {&slot.policy, &slot.state, slot.enabled()};
      });
    return found;
  }

  /// Throws PolicyConflict if two policies that are switched on exclude each other. CheckConflicts has
  /// refused those that are both listed without When.
  void require_no_conflict() {
    if constexpr ((is_when<Listed> || ...))
      for_each_index<size()>(
          [&](auto i) { require_no_conflict<i>(std::make_index_sequence<size() - i - 1>{}); });
  }

 private:
  static constexpr auto kOrder = running_order<unwrapped_t<Listed>...>();

  template <class Visit, std::size_t... I>
  void each_from(Visit& visit, std::index_sequence<I...>) {
    (visit(std::get<kOrder[I]>(slots_)), ...);
  }

  template <class Hook, class Visit, std::size_t... I>
  void each_from(Visit& visit, std::index_sequence<I...>) {
    (visit_if<Hook>(visit, std::get<kOrder[I]>(slots_)), ...);
  }
  template <class Hook, class Visit, class Slot>
  static void visit_if([[maybe_unused]] Visit& visit, [[maybe_unused]] Slot& slot) {
    if constexpr (Hook::template valid<typename Slot::Policy>())
      if (slot.enabled()) visit(slot);
  }

  /// Calls `body`, which calls `Hook` of a Slot's policy, inside the scopes of policies that record calls.
  template <class Hook, class Slot, class Body>
  decltype(auto) in_hook_scopes(const Body& body) {
    using P = typename Slot::Policy;
    if constexpr (hook_scope_hook::valid<P>() || std::is_same_v<Hook, phase_scope_hook>)
      return body();
    else
      return in_scopes<hook_scope_hook>(HookContext{type_name<P>(), Hook::name}, body);
  }

  /// Runs `body` inside the scopes of the policies from number I on in running order.
  template <std::size_t I, class Hook, class Context, class Body>
  decltype(auto) in_scopes_from(const Context& context, Body& body) {
    if constexpr (I == size()) {
      return body();
    } else {
      auto& slot = std::get<kOrder[I]>(slots_);
      using P = typename std::remove_reference_t<decltype(slot)>::Policy;
      if constexpr (Hook::template valid<P>()) {
        const auto enter = [&] { return call<Hook>(slot, context); };
        std::optional<decltype(enter())> scope;
        const auto leave = c10::make_scope_exit([&] {
          if (scope) in_hook_scopes<Hook, std::remove_reference_t<decltype(slot)>>([&] { scope.reset(); });
        });
        if (slot.enabled()) scope.emplace(Elide<decltype(enter)>{enter});
        return in_scopes_from<I + 1, Hook>(context, body);
      } else {
        return in_scopes_from<I + 1, Hook>(context, body);
      }
    }
  }

  template <std::size_t I, std::size_t... J>
  void require_no_conflict(std::index_sequence<J...>) {
    (require_no_conflict(std::get<I>(slots_), std::get<I + 1 + J>(slots_)), ...);
  }
  template <class A, class B>
  static void require_no_conflict([[maybe_unused]] const Slot<A>& a, [[maybe_unused]] const Slot<B>& b) {
    if constexpr (is_when<A> || is_when<B>)
      if (a.enabled() && b.enabled())
        if (const auto sentence = conflict_sentence<unwrapped_t<A>, unwrapped_t<B>>(); !sentence.empty())
          throw PolicyConflict(sentence);
  }

  std::tuple<Slot<Listed>...> slots_;
};

}  // namespace detail
}  // namespace looptorch
