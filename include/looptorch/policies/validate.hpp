// SPDX-License-Identifier: MIT
// Evaluates the model during a fit, on held-out batches, and publishes the results as named metrics: for
// schedules, early stopping, snapshots and progress lines. Costs one pass over these batches per evaluation.
#pragma once

#include <looptorch/base/device/random_states.hpp>
#include <looptorch/base/error.hpp>
#include <looptorch/base/state_dict.hpp>
#include <looptorch/base/text/type_name.hpp>
#include <looptorch/data/loader/batch_range.hpp>
#include <looptorch/loop/compose/measure.hpp>
#include <looptorch/loop/context.hpp>
#include <looptorch/loop/evaluation.hpp>
#include <looptorch/loop/phase.hpp>
#include <looptorch/loop/run.hpp>
#include <looptorch/policies/metrics/awaited_metrics.hpp>
#include <looptorch/policies/metrics/metric_reader.hpp>

#include <c10/util/Exception.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace looptorch {
namespace detail {

/// Limits evaluations to this many batches on each rank while it lives. A smaller limit in force stays.
class BatchLimit {
 public:
  BatchLimit(Run& run, std::int64_t batches) : run_(run), outer_(RunAccess::batch_limit(run)) {
    RunAccess::batch_limit(run) =
        std::min(batches, outer_.value_or(std::numeric_limits<std::int64_t>::max()));
  }
  ~BatchLimit() { RunAccess::batch_limit(run_) = outer_; }
  BatchLimit(const BatchLimit&) = delete;
  BatchLimit& operator=(const BatchLimit&) = delete;

 private:
  Run& run_;
  std::optional<std::int64_t> outer_;
};

}  // namespace detail

/// Says when `Validate` evaluates, and under which name it publishes.
struct ValidateOptions {
  std::int64_t every = 0;           ///< Steps between evaluations; 0: at the end of each epoch.
  std::string name = "validation";  ///< Publishes `<name>.loss` and `<name>.<metric>`.
  std::int64_t per_epoch = 0;  ///< In place of `every`: how often an epoch, evenly spaced, last at its end.
  bool at_start = false;       ///< Also before the run's first step.
  /// Also after the run's last step, if the number of steps is known: the weights that a run ends with are
  /// then measured where `max_steps` or `every` would leave them out.
  bool at_end = false;
  /// Batches evaluated on each rank before the first step, without a result, to find a wrong shape or name
  /// early. The run has the same bits with and without.
  std::int64_t sanity = 0;
};

/// Evaluates `measure` on `batches`, a multi-pass range. Holds an lvalue by reference, which must outlive the
/// Trainer; moves other ranges in. Without a measure, evaluates the Trainer's objective. Copies a measure
/// with `add` and `result`, as `Trainer::evaluate` takes it, for each evaluation. Publishes its results as
/// `<name>.<key>`, or a single number as `<name>.loss`. Several may be listed, each with a name of its own: a
/// fit refuses two of one name with UsageError.
///
/// Throws UsageError if a policy waits for a metric of `<name>` that is not published, as soon as the names
/// are known: before the first step from a measure's `metric_names()`, from a single number, or from the
/// objective, which is then evaluated on one batch; otherwise with the first evaluation. `sanity` makes a
/// first one of a few batches.
///
///   Validate{batches}
///   Validate{batches, {.every = 100, .sanity = 2}}
///   Validate{batches, word_errors, {.name = "test"}}
template <class Batches, class Measure = OwnObjective>
class Validate {
 public:
  Validate(Batches&& batches, ValidateOptions options = {})
      : Validate(std::forward<Batches>(batches), {}, std::move(options)) {}

  /// Throws UsageError for a negative number, and for both `every` and `per_epoch`.
  Validate(Batches&& batches, Measure measure, ValidateOptions options = {})
      : batches_(hold(std::forward<Batches>(batches))),
        measure_(std::move(measure)),
        options_(std::move(options)) {
    if (options_.every < 0)
      throw UsageError(message("Validate's `every` counts steps from 0 (each epoch), got ", options_.every));
    if (options_.per_epoch < 0)
      throw UsageError(message("Validate's `per_epoch` must be at least 0, got ", options_.per_epoch));
    if (options_.sanity < 0)
      throw UsageError(message("Validate's `sanity` counts batches from 0 (none), got ", options_.sanity));
    if (options_.every > 0 && options_.per_epoch > 0)
      throw UsageError(message("Validate evaluates every ", options_.every, " steps or ", options_.per_epoch,
                               " times an epoch; give one of the two"));
  }

  static constexpr Phase phase = Phase::evaluate;
  static constexpr bool repeatable = true;
  using evaluates = Evaluates<std::remove_reference_t<Batches>, Measure>;

  struct State {
    std::optional<Evaluation> last;  ///< Empty before the first.
    std::int64_t at_step = -1;       ///< The step count at that evaluation.
    std::int64_t parts = 0;          ///< With `per_epoch`: finished parts of the current epoch.
    bool warned_of_epochs = false;   ///< A loop of `step` was warned that it has no epochs.
    bool warned_of_metrics = false;  ///< A loop of `step` was warned of an unpublished metric.
  };

  /// Throws UsageError for a second Validate of one name, and for `per_epoch` with an unknown number of
  /// batches.
  void on_fit_begin(FitContext& fit, State&) const {
    fit.run.claim(message("metric '", options_.name, ".*'"), message("a Validate of ", measured()),
                  "give each Validate a name of its own, as {.name = \"test\"}");
    awaited_metrics().announce(fit.run.metrics());
    if (options_.per_epoch > 0 && !fit.run.progress().batches_per_epoch)
      throw UsageError(message(describe(), " is to evaluate ", options_.per_epoch,
                               " times an epoch, whose number of batches is not known: give `every` "
                               "in steps"));
  }

  void on_fit_ready(FitContext& fit, State& state) const {
    const bool is_first = state.at_step < 0;
    awaited_metrics().check_before_evaluation(fit.run.metrics());
    if (is_first && options_.at_start && fit.run.progress().step == 0)
      evaluate(fit.run, state);
    else if (const std::int64_t batches = trial_batches(fit.run.metrics(), is_first); batches > 0)
      try_out(fit.run, batches);
  }
  /// Evaluates if due. Warns once that a loop of `step` has no epochs, at whose end it would evaluate.
  void on_window_end(WindowContext& window, State& state) const {
    const Progress& progress = window.run.progress();
    if (options_.every == 0 && !window.run.feed().has_epochs && !std::exchange(state.warned_of_epochs, true))
      TORCH_WARN("looptorch: ", describe(),
                 " evaluates at the end of each epoch, and a loop of step() has none: give `every` in steps");
    const bool by_steps = options_.every > 0 && progress.step % options_.every == 0;
    const bool at_end = ends_run(progress) && progress.batch != progress.batches_per_epoch;
    if (by_steps || ends_part(progress, state) || at_end) evaluate(window.run, state);
  }
  void on_epoch_end(EpochContext& epoch, State& state) const {
    state.parts = 0;
    const bool is_done = state.at_step == epoch.run.progress().step;
    const bool is_last = epoch.run.batch_limit() || ends_run(epoch.run.progress());
    if (is_last ? !is_done : options_.every == 0) evaluate(epoch.run, state);
  }

  void state_dict(StateDict& out, State& state) const {
    out.set("of", describe());
    out.set("at_step", state.at_step);
    out.set("parts", state.parts);
    if (!state.last) return;
    StateDict last;
    detail::save(*state.last, last);
    out.set("last", last);
  }
  /// Throws StateError for the state of another Validate.
  void load_state_dict(const StateDict& in, State& state) const {
    detail::require_state_of(describe(), in);
    state.at_step = in.get<std::int64_t>("at_step");
    state.parts = in.get<std::int64_t>("parts");
    if (const StateDict last = in.under("last"); !last.empty()) state.last = detail::load_evaluation(last);
  }

 private:
  using Held = std::remove_reference_t<Batches>;
  static_assert(detail::kRepeatable<Held>,
                "looptorch: Validate needs batches that can be gone through again, such as a std::vector "
                "or a loader. See docs/errors.md#validate");

  static_assert(
      !detail::HasResult<Measure> || std::is_copy_constructible_v<Measure>,
      "looptorch: Validate copies a measure that accumulates, so that each evaluation begins with an "
      "empty one. Give it a copy constructor. See docs/errors.md#measure");

  static std::shared_ptr<Held> hold(Batches&& batches) {
    if constexpr (std::is_lvalue_reference_v<Batches>)
      return std::shared_ptr<Held>(std::shared_ptr<void>(), &batches);
    else
      return std::make_shared<Held>(std::move(batches));
  }

  [[nodiscard]] static std::string_view measured() {
    if constexpr (std::is_same_v<Measure, OwnObjective>)
      return "the objective";
    else
      return detail::type_name<Measure>();
  }
  [[nodiscard]] std::string describe() const { return "a Validate named " + options_.name; }

  /// True with `at_end` after the run's last step.
  [[nodiscard]] bool ends_run(const Progress& progress) const {
    return options_.at_end && progress.total_steps && progress.step >= *progress.total_steps;
  }

  /// True in the window that completes one of `per_epoch` parts of its epoch. False for the last part, which
  /// ends with the epoch.
  [[nodiscard]] bool ends_part(const Progress& progress, State& state) const {
    if (options_.per_epoch == 0 || !progress.batches_per_epoch) return false;
    const auto parts = static_cast<std::int64_t>(static_cast<double>(progress.batch) *
                                                 static_cast<double>(options_.per_epoch) /
                                                 static_cast<double>(*progress.batches_per_epoch));
    return std::exchange(state.parts, parts) < parts && progress.batch < *progress.batches_per_epoch;
  }

  void evaluate(Run& run, State& state) const {
    state.last = evaluation(run);
    if (state.last->batches == 0)
      throw UsageError("Validate has nothing to evaluate: its range of batches, " + options_.name +
                       ", is empty");
    state.at_step = run.progress().step;
    if constexpr (!detail::names_results<Measure>())
      run.metrics().publish(options_.name + ".loss", state.last->loss);
    for (const auto& [name, value] : state.last->metrics)
      run.metrics().publish(options_.name + "." + name, value);
    awaited_metrics().check_evaluation(run.metrics(), *state.last);
    if (!run.feed().has_epochs && !state.warned_of_metrics) warn_of_missing(run.metrics(), state);
  }

  [[nodiscard]] Evaluation evaluation(Run& run) const {
    if constexpr (std::is_same_v<Measure, OwnObjective>)
      return run.evaluate(*batches_);
    else if constexpr (detail::HasResult<Measure>)
      return run.evaluate(*batches_, Measure(measure_));
    else
      return run.evaluate(*batches_, measure_);
  }

  /// Evaluates a few batches as a check, and to learn the results' names. Restores the random numbers.
  void try_out(Run& run, std::int64_t batches) const {
    const auto random = detail::RandomStates::now();
    Evaluation result;
    {
      const detail::BatchLimit limit(run, batches);
      result = evaluation(run);
    }
    random.apply();
    if (result.batches == 0) return;
    awaited_metrics().check_evaluation(run.metrics(), result);
    awaited_metrics().announce(run.metrics(), result);
  }

  /// Returns how many batches to try: `sanity` before the first step, and at least one if only the objective
  /// can name an awaited metric.
  [[nodiscard]] std::int64_t trial_batches(const MetricBoard& board, bool is_first) const {
    const std::int64_t sanity = is_first ? options_.sanity : 0;
    return awaited_metrics().need_trial_batch(board) ? std::max<std::int64_t>(sanity, 1) : sanity;
  }

  /// Warns of an awaited metric that has not been published, in a loop without epochs, where the check of
  /// `MetricBoard::require_published` never comes.
  static void warn_of_missing(const MetricBoard& board, State& state) {
    const std::string sentence = board.describe_missing();
    state.warned_of_metrics = !sentence.empty();
    if (state.warned_of_metrics) TORCH_WARN("looptorch: ", sentence);
  }

  [[nodiscard]] detail::AwaitedMetrics<Measure> awaited_metrics() const {
    return {options_.name + ".", measure_};
  }

  std::shared_ptr<Held> batches_;
  mutable Measure measure_;
  ValidateOptions options_;
};

template <class Batches>
Validate(Batches&&) -> Validate<Batches>;
template <class Batches>
Validate(Batches&&, ValidateOptions) -> Validate<Batches>;
template <class Batches, class Measure>
Validate(Batches&&, Measure) -> Validate<Batches, Measure>;
template <class Batches, class Measure>
Validate(Batches&&, Measure, ValidateOptions) -> Validate<Batches, Measure>;

}  // namespace looptorch
