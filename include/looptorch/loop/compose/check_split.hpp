// SPDX-License-Identifier: MIT
// Checks at compile time that micro-batches can be split. The check applies if a listed policy, such as
// RetryOnOom, reruns windows in smaller pieces. It covers the batch type, the objectives and the optimizers.
#pragma once

#include <looptorch/data/batch/batch_slice.hpp>
#include <looptorch/loop/compose/check_batch.hpp>
#include <looptorch/loop/compose/closure.hpp>
#include <looptorch/objective/loss.hpp>

#include <tuple>
#include <type_traits>

namespace looptorch::detail {

/// True if a batch can be split, and all updates have objectives that return its weight.
template <class Model, class Batch, class Updates>
inline constexpr bool can_split = false;
template <class Model, class Batch, class... Optimizers, class... Objectives>
inline constexpr bool can_split<Model, Batch, std::tuple<Update<Optimizers, Objectives>...>> =
    SliceableBatch<Batch> &&
    (std::is_same_v<std::remove_cvref_t<std::invoke_result_t<Objectives&, Model&, const Batch&>>, Loss> &&
     ...);

/// Checks a batch type against the objectives of all updates, where a policy splits micro-batches.
template <class Model, class Batch, class Updates>
struct CheckSplitBatch;
template <class Model, class Batch, class... Optimizers, class... Objectives>
struct CheckSplitBatch<Model, Batch, std::tuple<Update<Optimizers, Objectives>...>>
    : CheckBatch<Model, Batch, std::tuple<Update<Optimizers, Objectives>...>> {
  using Base = CheckBatch<Model, Batch, std::tuple<Update<Optimizers, Objectives>...>>;

  template <class Objective>
  static constexpr bool weighs() {
    if constexpr (Base::passed)
      return std::is_same_v<std::remove_cvref_t<std::invoke_result_t<Objective&, Model&, const Batch&>>,
                            Loss>;
    else
      return true;
  }
  static constexpr bool all_weigh = (weighs<Objectives>() && ...);
  static constexpr bool splits = !Base::passed || SliceableBatch<Batch>;
  static constexpr bool no_closure = !(steps_by_closure<Update<Optimizers, Objectives>> || ...);
  static constexpr bool passed = Base::passed && splits && all_weigh && no_closure;
  static_assert(
      splits,
      "looptorch: a listed policy splits batches, and this type cannot be split. Give it `slice(begin, "
      "end) const`, which returns these samples. See docs/errors.md#split-batch");
  static_assert(
      all_weigh,
      "looptorch: a listed policy splits batches, and an objective returns no weight, by which pieces "
      "add up. Return a looptorch::Loss with value and weight. See docs/errors.md#split-objective");
  static_assert(
      no_closure,
      "looptorch: a listed policy has windows rerun, and an optimizer that takes a closure, such as "
      "LBFGS, moves parameters before it is done. Drop the policy. See docs/errors.md#split-closure");
};

/// Selects the check of a batch type. A policy under When retries a batch whole if it cannot be split.
template <class Engine, class Model, class Batch, class Updates>
using check_batch_t =
    std::conditional_t<Engine::PolicyStack::template always_has<pieces_hook>(),
                       CheckSplitBatch<Model, Batch, Updates>, CheckBatch<Model, Batch, Updates>>;

}  // namespace looptorch::detail
