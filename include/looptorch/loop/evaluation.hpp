// SPDX-License-Identifier: MIT
// Defines the result of an evaluation, and EvalScope, in which evaluations run. The scope sets every module
// to eval mode, and at its end restores each module's own mode.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/state_dict.hpp>

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

/// Selects the Trainer's own objective in place of a measure.
struct OwnObjective {
  OwnObjective() =
      default;  // no aggregate: in templates clang 14 makes one of `Validate{batches, {.every = 1}}`
};

/// A policy's declaration that it evaluates: `using evaluates = Evaluates<Batches, Measure>;`, or a
/// `std::tuple` of several. Its hooks may then call `run.evaluate(batches, measure)` with these types.
/// `Batches` is const if the hook passes a const range, such as a member of the policy.
template <class Batches, class Measure = OwnObjective>
struct Evaluates {};

/// Puts a module and all its descendants into eval mode while it lives, then restores the mode of each.
template <class Module>
class EvalScope {
 public:
  explicit EvalScope(Module& module) {
    for (const auto& each : module.modules()) modes_.emplace_back(each, each->is_training());
    module.eval();
  }
  // Parents come before their children, so a child's own mode is restored last.
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

}  // namespace detail
}  // namespace looptorch
