// SPDX-License-Identifier: MIT
// Defines what `evaluate` accepts: a function of model and batch, or a measure, which accumulates over all
// batches before it has a result. Also sums the functions' results, on the device and over ranks.
#pragma once

#include <looptorch/base/rank_reduction.hpp>
#include <looptorch/loop/evaluation.hpp>
#include <looptorch/objective/agreed_means.hpp>
#include <looptorch/objective/running_mean.hpp>

#include <cstdint>
#include <map>
#include <ranges>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

namespace looptorch::detail {

/// A result of an evaluation's callable: a loss, a 0-dim tensor or a number.
template <class T>
concept MeasureLike = LossLike<T> || std::is_arithmetic_v<std::remove_cvref_t<T>>;

/// A result of a measure that accumulates: a number, or numbers by name.
template <class T>
concept ResultLike = std::is_arithmetic_v<std::remove_cvref_t<T>> ||
    std::is_same_v<std::remove_cvref_t<T>, std::map<std::string, double>>;

// clang-format off
template <class Measure>
concept HasResult = requires(Measure& measure) { measure.result(); };
/// A measure that sees all batches before it has a result, as a corpus error rate must.
template <class Measure>
concept GivesResult = requires(Measure& measure) { { measure.result() } -> ResultLike; };
template <class Measure, class Model, class Batch>
concept HasAdd = requires(Measure& measure, Model& model, const Batch& batch) { measure.add(model, batch); };
template <class Measure, class Model, class Batch>
concept Accumulates = GivesResult<Measure> && HasAdd<Measure, Model, Batch>;
// clang-format on

/// True if the measure's result is a map of names to numbers, and not one number.
template <class Measure>
constexpr bool names_results() {
  if constexpr (GivesResult<Measure>)
    return !std::is_arithmetic_v<std::remove_cvref_t<decltype(std::declval<Measure&>().result())>>;
  else
    return false;
}

inline Loss as_measure(Loss loss) { return as_loss(std::move(loss)); }
inline Loss as_measure(at::Tensor value) { return as_loss(std::move(value)); }
// clang-format off
template <class Number>
  requires std::is_arithmetic_v<Number>
Quantity as_measure(Number number) {
  return number;
}
// clang-format on

/// Sums on the device, and reads the sums once.
class EvaluationSums {
 public:
  void add(const Loss& loss) {
    record(loss, loss_, metrics_);
    ++batches_;
  }
  /// Adds a batch that was measured in pieces.
  void add(const std::vector<Loss>& pieces) {
    for (const Loss& loss : pieces) record(loss, loss_, metrics_);
    ++batches_;
  }
  void add(const Quantity& number) {
    loss_.add(number, 1.0);
    ++batches_;
  }
  /// Counts a batch that a measure has accumulated.
  void add() { ++batches_; }

  /// Adds the sums to `reduction`; `take` then replaces them by the sums of all ranks.
  void all_reduce(RankReduction& reduction) {
    agreed_.add(reduction, "", loss_, metrics_);
    reduction.sum("batches", batches_);
  }
  void take(const RankReduction& reduction) { agreed_.take(reduction, "", loss_, metrics_); }

  [[nodiscard]] Evaluation read() const {
    const WeightedSum totals = loss_.totals();
    Evaluation result{totals.mean(), {}, totals.weight, batches_};
    for (const auto& [name, mean] : metrics_) result.metrics[name] = mean.mean();
    return result;
  }

 private:
  RunningMean loss_;
  RunningMeans metrics_;
  AgreedMeans agreed_;
  std::int64_t batches_ = 0;
};

template <class Measure>
void take_result(Measure& measure, Evaluation& evaluation) {
  if constexpr (names_results<Measure>())
    evaluation.metrics = measure.result();
  else
    evaluation.loss = static_cast<double>(measure.result());
}

/// True for a measure that reduces its result over ranks: it adds its sums to a RankReduction.
template <class Measure>
inline constexpr bool all_reduces = requires(Measure& measure, RankReduction& reduction) {
  measure.all_reduce(reduction);
};

/// Gives all ranks the first rank's result.
inline void broadcast_result(RankReduction& reduction, Evaluation& evaluation) {
  reduction.broadcast("result", evaluation.loss);
  for (auto& [name, value] : evaluation.metrics) reduction.broadcast("result " + name, value);
}

template <class T>
inline constexpr bool is_evaluates = false;
template <class Batches, class Measure>
inline constexpr bool is_evaluates<Evaluates<Batches, Measure>> = std::ranges::input_range<Batches>;
template <class... Each>
inline constexpr bool is_evaluates<std::tuple<Each...>> = (is_evaluates<Each> && ...);

}  // namespace looptorch::detail
