// SPDX-License-Identifier: MIT
// Throws if a policy such as StopEarly waits for a metric that no Validate publishes, as after a typing
// error. Throws before the first step if the names are known by then: the Validate's measure declares its
// metrics or returns a single number, or is the Trainer's objective, which first runs on a trial batch. Other
// measures have to be evaluated once before their names are known.
#pragma once

#include <looptorch/loop/compose/measure.hpp>
#include <looptorch/loop/evaluation.hpp>
#include <looptorch/loop/metric_board.hpp>

#include <ranges>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace looptorch::detail {

/// A measure that declares its results' names, for some batches at least.
template <class Measure>
concept DeclaresMetrics = requires(const Measure& measure) {
  { measure.metric_names() } -> std::ranges::input_range;
};

/// Compares the names that `measure` publishes under `prefix`, which ends with a dot, with those that
/// policies wait for. Refers to the measure.
template <class Measure>
class AwaitedMetrics {
 public:
  AwaitedMetrics(std::string prefix, const Measure& measure)
      : prefix_(std::move(prefix)), measure_(&measure) {}

  void announce(MetricBoard& board) const {
    board.announce(prefix_);
    if constexpr (!names_results<Measure>()) board.announce(prefix_ + "loss");
    for (const std::string& name : declared_names()) board.announce(name);
  }
  /// Announces the names that a trial has given: another policy may publish under the prefix before the first
  /// evaluation, and the prefix alone then keeps no consumer waiting.
  void announce(MetricBoard& board, const Evaluation& trial) const {
    for (const std::string& name : names_in(trial)) board.announce(name);
  }

  /// Throws UsageError for an awaited name that is known never to come, before any evaluation.
  void check_before_evaluation(const MetricBoard& board) const {
    if constexpr (DeclaresMetrics<Measure>)
      board.refuse_awaited_outside(prefix_, declared_names());
    else if constexpr (GivesResult<Measure> && !names_results<Measure>())
      board.refuse_awaited_outside(prefix_, {prefix_ + "loss"});
  }

  /// Throws UsageError for an awaited name that `evaluation`, which has all names, lacks.
  void check_evaluation(const MetricBoard& board, const Evaluation& evaluation) const {
    if constexpr (!DeclaresMetrics<Measure>) board.refuse_awaited_outside(prefix_, names_in(evaluation));
  }

  /// True if a policy waits for a metric that only an evaluation of the objective can name.
  [[nodiscard]] bool need_trial_batch(const MetricBoard& board) const {
    return std::is_same_v<Measure, OwnObjective> && board.awaits_outside(prefix_, {prefix_ + "loss"});
  }

 private:
  [[nodiscard]] std::vector<std::string> declared_names() const {
    std::vector<std::string> names;
    if constexpr (DeclaresMetrics<Measure>)
      for (const auto& name : measure_->metric_names()) names.push_back(prefix_ + std::string(name));
    return names;
  }
  [[nodiscard]] std::vector<std::string> names_in(const Evaluation& evaluation) const {
    std::vector<std::string> names;
    for (const auto& item : evaluation.metrics) names.push_back(prefix_ + item.first);
    if constexpr (!names_results<Measure>()) names.push_back(prefix_ + "loss");
    return names;
  }

  std::string prefix_;
  const Measure* measure_;
};

}  // namespace looptorch::detail
