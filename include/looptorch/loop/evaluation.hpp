// SPDX-License-Identifier: MIT
// What `Trainer::evaluate` returns, and the scope that it runs in: no gradients, every module in eval mode,
// and afterwards each module in its own mode again.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/state_dict.hpp>
#include <looptorch/loop/running_mean.hpp>

#include <cstdint>
#include <map>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace looptorch {

/// Weighted means over all batches, or the results of a measure that accumulates.
struct Evaluation {
  double loss = 0.0;  ///< NaN if nothing had any weight, and for a measure that names its results.
  std::map<std::string, double> metrics;  ///< By the names that the callable or the measure gave.
  double weight = 0.0;                    ///< Tokens, frames or examples in all.
  std::int64_t batches = 0;
};

namespace detail {

inline void save(const Evaluation& evaluation, StateDict& out) {
  out.set("loss", evaluation.loss);
  out.set("weight", evaluation.weight);
  out.set("batches", evaluation.batches);
  std::int64_t number = 0;
  for (const auto& [name, value] : evaluation.metrics) {
    out.set(message("metric.", number, ".name"), name);
    out.set(message("metric.", number++, ".value"), value);
  }
  out.set("metrics", number);
}

[[nodiscard]] inline Evaluation load_evaluation(const StateDict& in) {
  Evaluation evaluation{
      in.get<double>("loss"), {}, in.get<double>("weight"), in.get<std::int64_t>("batches")};
  for (std::int64_t number = in.get<std::int64_t>("metrics"); number-- > 0;) {
    const StateDict metric = in.under(message("metric.", number));
    evaluation.metrics[metric.get<std::string>("name")] = metric.get<double>("value");
  }
  return evaluation;
}

/// What an evaluation's callable may return: a loss, a 0-dim tensor or a number.
template <class T>
concept MeasureLike = LossLike<T> || std::is_arithmetic_v<std::remove_cvref_t<T>>;

/// What the `result()` of a measure that accumulates may return: a number, or numbers by name.
template <class T>
concept ResultLike = std::is_arithmetic_v<std::remove_cvref_t<T>> ||
    std::is_same_v<std::remove_cvref_t<T>, std::map<std::string, double>>;

// clang-format off
template <class Measure>
concept HasResult = requires(Measure& measure) { measure.result(); };
/// A measure that looks at all batches before it says anything, as a corpus error rate must.
template <class Measure>
concept GivesResult = requires(Measure& measure) { { measure.result() } -> ResultLike; };
template <class Measure, class Model, class Batch>
concept HasAdd = requires(Measure& measure, Model& model, const Batch& batch) { measure.add(model, batch); };
template <class Measure, class Model, class Batch>
concept Accumulates = GivesResult<Measure> && HasAdd<Measure, Model, Batch>;
// clang-format on

/// True where the measure's results have names of their own.
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

/// Sums up on the device; reads back once.
class EvaluationSums {
 public:
  void add(const Loss& loss) {
    record(loss, loss_, metrics_);
    ++batches_;
  }
  void add(const Quantity& number) {
    loss_.add(number, 1.0);
    ++batches_;
  }
  /// Counts a batch that a measure has accumulated.
  void add() { ++batches_; }

  [[nodiscard]] Evaluation read() const {
    const WeightedSum totals = loss_.totals();
    Evaluation result{totals.mean(), {}, totals.weight, batches_};
    for (const auto& [name, mean] : metrics_) result.metrics[name] = mean.mean();
    return result;
  }

 private:
  RunningMean loss_;
  RunningMeans metrics_;
  std::int64_t batches_ = 0;
};

template <class Measure>
void take_result(Measure& measure, Evaluation& evaluation) {
  if constexpr (names_results<Measure>())
    evaluation.metrics = measure.result();
  else
    evaluation.loss = static_cast<double>(measure.result());
}

/// Eval mode for a module and all its descendants; restores each one's own mode.
template <class Module>
class EvalScope {
 public:
  explicit EvalScope(Module& module) {
    for (const auto& each : module.modules()) modes_.emplace_back(each, each->is_training());
    module.eval();
  }
  // Parents come before their children, so that a child's own mode has the last word.
  ~EvalScope() {
    for (const auto& [module, training] : modes_)
      if (module->is_training() != training) module->train(training);
  }
  EvalScope(const EvalScope&) = delete;
  EvalScope& operator=(const EvalScope&) = delete;

 private:
  using Handle = typename std::remove_cvref_t<decltype(std::declval<Module&>().modules())>::value_type;
  std::vector<std::pair<Handle, bool>> modes_;
};

}  // namespace detail
}  // namespace looptorch
