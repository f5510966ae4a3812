// SPDX-License-Identifier: MIT
// Checks the arguments of `fit`, `step` and `evaluate` at compile time: ranges, batches, and the callables
// that take batches. Each mistake gives an error of one sentence.
#pragma once

#include <looptorch/data/loader/batch_range.hpp>
#include <looptorch/loop/compose/measure.hpp>
#include <looptorch/loop/compose/parts.hpp>

#include <ranges>
#include <tuple>
#include <type_traits>
#include <utility>

namespace looptorch::detail {

template <class T>
inline constexpr bool is_batch = BatchLike<T>;
template <class T>
inline constexpr bool is_range = std::ranges::input_range<T>;

/// Checks the ranges that fit and evaluate iterate over.
template <class Batches>
struct CheckRange {
  static constexpr bool passed = is_range<Batches>;
  static_assert(passed,
                "looptorch: fit and evaluate need a range of batches, such as a std::vector, a "
                "PinnedPrefetchLoader, or TorchBatches(*loader) of LibTorch's DataLoader. See "
                "docs/errors.md#not-a-range");
};

template <class Callable, class Model, class Batch>
inline constexpr bool takes_batch = std::is_invocable_v<Callable&, Model&, const Batch&>;

/// True if only the model's type is wrong: the callable takes `NetImpl&` where it gets the holder `Net&`.
/// Skips generic callables that take the holder, since their body may not compile with the module.
template <class Callable, class Model, class Batch>
constexpr bool takes_module() {
  if constexpr (takes_batch<Callable, Model, Batch>)
    return false;
  else
    return std::is_invocable_v<Callable&, decltype(*std::declval<Model&>()), const Batch&>;
}

template <class Callable, class Model, class Batch>
constexpr bool returns_loss() {
  if constexpr (takes_batch<Callable, Model, Batch>)
    return LossLike<std::invoke_result_t<Callable&, Model&, const Batch&>>;
  else
    return true;
}

template <class Callable, class Model, class Batch>
constexpr bool measures() {
  if constexpr (takes_batch<Callable, Model, Batch>)
    return MeasureLike<std::invoke_result_t<Callable&, Model&, const Batch&>>;
  else
    return false;
}

/// Checks a batch type against the objectives of all updates.
template <class Model, class Batch, class Updates>
struct CheckBatch;
template <class Model, class Batch, class... Optimizers, class... Objectives>
struct CheckBatch<Model, Batch, std::tuple<Update<Optimizers, Objectives>...>> {
  static constexpr bool all_take_it = (takes_batch<Objectives, Model, Batch> && ...);
  static constexpr bool some_take_module = (takes_module<Objectives, Model, Batch>() || ...);
  static constexpr bool all_return_losses = (returns_loss<Objectives, Model, Batch>() && ...);
  static constexpr bool passed = is_batch<Batch> && all_take_it && all_return_losses;
  static_assert(is_batch<Batch>,
                "looptorch: fit cannot find the tensors in this batch type. Make it an aggregate of "
                "tensors, numbers, strings and vectors, or give it each_tensor(f). See docs/errors.md#batch");
  static_assert(
      !some_take_module,
      "looptorch: an objective takes the module in place of its holder. Take the model as the Trainer "
      "holds it: Net&, as TORCH_MODULE(Net) names it, not NetImpl&. See "
      "docs/errors.md#objective-module");
  static_assert(all_take_it || some_take_module,
                "looptorch: an objective does not take these batches. It is called as objective(Model&, "
                "const Batch&), where Batch is what the range yields. See docs/errors.md#objective-batch");
  static_assert(all_return_losses,
                "looptorch: an objective must return a looptorch::Loss or a 0-dim tensor. See "
                "docs/errors.md#objective-result");
};

/// Checks evaluate's callable.
template <class Measure, class Model, class Batch>
struct CheckMeasure {
  using Held = std::remove_reference_t<Measure>;
  static constexpr bool accumulates = HasResult<Held> || HasAdd<Held, Model, Batch>;
  static constexpr bool passed =
      accumulates ? Accumulates<Held, Model, Batch> : measures<Measure, Model, Batch>();
  static_assert(passed || accumulates,
                "looptorch: evaluate calls its callable as (Model&, const Batch&) and needs a Loss, a "
                "0-dim tensor or a number. See docs/errors.md#evaluate");
  static_assert(
      passed || !accumulates,
      "looptorch: a measure that accumulates needs `add(Model&, const Batch&)`, and `result()` that "
      "returns a number or a std::map<std::string, double>. See docs/errors.md#measure");
};

/// Checks one evaluation that a policy declares.
template <class Model, class Updates, class Evaluated>
struct CheckEvaluates;
template <class Model, class Updates, class Batches, class Measure>
struct CheckEvaluates<Model, Updates, Evaluates<Batches, Measure>>
    : CheckMeasure<Measure&, Model, range_batch_t<Batches>> {};
template <class Model, class Updates, class Batches>
struct CheckEvaluates<Model, Updates, Evaluates<Batches, OwnObjective>>
    : CheckBatch<Model, range_batch_t<Batches>, Updates> {
  static_assert(std::tuple_size_v<Updates> == 1,
                "looptorch: a Trainer with several updates has several objectives. Say what to measure: "
                "evaluate(batches, callable). See docs/errors.md#evaluate");
};

/// Checks a policy's `evaluates`, a single type or a tuple of several; checks nothing for other parts.
template <class Model, class Updates, class... Each>
struct CheckEvaluates<Model, Updates, std::tuple<Each...>> {
  std::tuple<CheckEvaluates<Model, Updates, Each>...> checks;
};
template <class Model, class Updates, class P>
using check_evaluates_t = CheckEvaluates<Model, Updates, typename EvaluatesOf<P>::type>;

}  // namespace looptorch::detail
