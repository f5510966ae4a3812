// SPDX-License-Identifier: MIT
// What fit and evaluate ask of batches and of the callables that take them, each with a sentence of its own.
#pragma once

#include "looptorch/loop/batches.hpp"
#include "looptorch/loop/evaluation.hpp"
#include "looptorch/loop/loss.hpp"
#include "looptorch/loop/update.hpp"

#include <ranges>
#include <tuple>
#include <type_traits>

namespace looptorch::detail {

template <class Batches>
constexpr bool check_range() {
  static_assert(std::ranges::input_range<Batches>,
                "looptorch: fit and evaluate need a range of batches, such as a std::vector or a PinnedPrefetchLoader. See "
                "docs/errors.md#not-a-range");
  return std::ranges::input_range<Batches>;
}

template <class Measure, class Model, class Batch>
concept MeasureOf = std::is_invocable_v<Measure&, Model&, const Batch&> &&
                    MeasureLike<std::invoke_result_t<Measure&, Model&, const Batch&>>;

template <class Objective, class Model, class Batch>
constexpr bool check_objective() {
  constexpr bool callable = std::is_invocable_v<Objective&, Model&, const Batch&>;
  static_assert(callable,
                "looptorch: an objective does not take these batches. It is called as objective(Model&, const Batch&), where "
                "Batch is what the range yields. See docs/errors.md#objective-batch");
  if constexpr (callable) {
    constexpr bool returns_loss = LossLike<std::invoke_result_t<Objective&, Model&, const Batch&>>;
    static_assert(returns_loss,
                  "looptorch: an objective must return a looptorch::Loss or a 0-dim tensor. See "
                  "docs/errors.md#objective-result");
    return returns_loss;
  } else {
    return false;
  }
}

template <class Model, class Batch, class... Optimizers, class... Objectives>
constexpr bool check_objectives(std::type_identity<std::tuple<Update<Optimizers, Objectives>...>>) {
  static_assert(BatchLike<Batch>,
                "looptorch: fit cannot find the tensors in this batch type. Make it an aggregate of tensors, numbers, "
                "strings and vectors, or give it each_tensor(f). See docs/errors.md#batch");
  if constexpr (BatchLike<Batch>)
    return (check_objective<Objectives, Model, Batch>() && ...);
  else
    return false;
}

}  // namespace looptorch::detail
